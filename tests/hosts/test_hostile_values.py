"""Values and sequences whose own code runs while they are read: a sentence or a forecast, and never a crash.

Each runs in an interpreter of its own, which a crash would end.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAD = """
from calibeat import Calibrator, InvalidInput

cal = Calibrator(groups=["a", "b"])

class Word(str):
    def __hash__(self):
        values.clear()
        return 1

class Thing:
    def __hash__(self):
        values.clear()
        return 1

class Short(list):
    def __iter__(self):
        return iter(())

def said(values):
    try:
        return cal.predict(0.3, values).probability
    except InvalidInput as error:
        return str(error)
"""

KINDS = {
    "a list that empties itself": ('values = [Word("x"), "y"]', "0.3"),
    "a dict that empties itself": ('values = {"a": Word("x"), "b": "y"}', "groups must be a, b, got none"),
    "a dict that drops its last value": ('values = {"a": "x", "b": Word("y")}', "0.3"),
    "a dict that drops what is no value": (
        'values = {}; values["a"] = Thing(); values["b"] = "y"',
        "a must be a string",
    ),
    "a list that is shorter than it says": ('values = Short(["x", "y"])', "groups must be"),
    "an array": ('import numpy; values = numpy.array(["x", "y"])', "0.3"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_values_that_change_what_is_read(kind: str) -> None:
    make, expected = KINDS[kind]
    code = f"{HEAD}\nfor _ in range(100):\n    {make}\n    answer = said(values)\nprint(answer)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert expected in done.stdout
