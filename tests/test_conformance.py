"""Every method on every kind of stream does what `conformance` says."""

from __future__ import annotations

import copy
import json
import os
import pickle
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from conformance import CHECKS, Check, delays, same
from conftest import JIT_OFF
from streams import STREAMS, extremes, variants

from calibeat import Calibrator, Method
from calibeat.core import jit as _jit

METHODS = variants() | extremes()
PATH = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS.keys())
def test_conformance(check: Check, method: Method) -> None:
    for stream in ("drifting", "extreme", "T = 1", "T = 2"):
        check(method, *STREAMS[stream]())


def everything() -> dict[str, list[str]]:
    """Forecasts and final rows of all methods on all streams, immediate and late, as exact text."""
    results = {}
    for name, method in METHODS.items():
        for stream, make in STREAMS.items():
            scores, outcomes = make()
            for late in (False, True):
                calibrator = Calibrator(method, seed=2)
                forecasts = calibrator.run(scores, outcomes, due=delays(len(scores)) if late else None)
                numbers = np.concatenate([forecasts, calibrator.row, calibrator.predict_many(scores)])
                results[f"{name} / {stream} / {late}"] = [number.hex() for number in numbers.tolist()]
    return results


@pytest.mark.skipif(JIT_OFF, reason="compares with the JIT on")
def test_jit_on_and_off_are_bitwise_equal() -> None:
    program = "import json, sys, test_conformance as t; json.dump(t.everything(), sys.stdout)"
    environment = {**os.environ, "NUMBA_DISABLE_JIT": "1", "PYTHONPATH": PATH}
    plain = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
    ).stdout
    compiled = everything()
    for name, numbers in json.loads(plain).items():
        assert compiled[name] == numbers, name


@pytest.mark.skipif(JIT_OFF, reason="about compiled kernels")
def test_single_events_after_warming_up_are_bitwise_equal() -> None:
    """In a process of its own, for what is warm stays warm."""
    program = """
import numpy as np, calibeat, test_conformance as t
from calibeat import Calibrator, Forecast
from calibeat.core import jit as _jit
from conformance import delays, one_by_one, one_by_one_late, same
plain = {}
for warm in (False, True):
    for name, method in t.METHODS.items():
        scores, outcomes = (column[:120] for column in t.STREAMS["drifting"]())
        now, late = Calibrator(method, seed=2), Calibrator(method, seed=2)
        results = [one_by_one(now, scores, outcomes), one_by_one_late(late, scores, outcomes, delays(120))]
        last = now.predict(0.3)
        assert all(type(number) is float for number in (*last.lanes, last.probability, last.expert, last.score))
        now.update(Forecast.from_json(last.to_json()), 1)
        results = np.concatenate([*results, now.row, late.row])
        same(results, plain.setdefault(name, results))
    calibeat.warm_up()
single = {"predict_one", "settle_one", "predict", "update"}
assert single | {"run", "run_late", "predict_many"} <= set(_jit.dispatchers())
assert all(len(dispatcher.signatures) == 1 for dispatcher in _jit.dispatchers().values())
"""
    environment = {**os.environ, "PYTHONPATH": PATH}
    subprocess.run([sys.executable, "-W", "error", "-c", program], env=environment, check=True)
    # They are in the cache now: the next process finds them at its first batch, and not before.
    program = """
import sys
from calibeat import Calibrator
from calibeat.core import jit as _jit
from calibeat.hosts import dispatch as warm
cal = Calibrator()
cal.update(cal.predict(0.5), 1)
assert "numba" not in sys.modules
cal.run([0.5], [1])
assert warm.single_is_compiled() and not cal._is_plain and cal._fast_predict[0] is Calibrator("ops")._fast_predict[0]
"""
    subprocess.run([sys.executable, "-W", "error", "-c", program], env=environment, check=True)


def test_draws_do_not_depend_on_batching() -> None:
    scores, outcomes = STREAMS["random"]()
    whole = Calibrator("hops", seed=9).run(scores, outcomes)
    pieces = Calibrator("hops", seed=9)
    cuts = [0, 1, 2, 50, 51, 200, 300]
    same(whole, np.concatenate([pieces.run(scores[a:b], outcomes[a:b]) for a, b in pairwise(cuts)]))
    assert (whole != Calibrator("hops", seed=10).run(scores, outcomes)).any()
    assert (whole != Calibrator("hops", seed=9, stream="other").run(scores, outcomes)).any()


@pytest.mark.skipif(JIT_OFF, reason="there is nothing compiled")
def test_one_signature_per_kernel() -> None:
    frozen = np.linspace(0, 1, 5)
    frozen.flags.writeable = False
    columns = np.rec.fromarrays([np.full(3, b"x"), np.full(3, 0.5)])["f1"]  # neither contiguous nor aligned
    swps = Calibrator("swps")
    assert not swps.method.spec.flags.writeable
    for twin in (copy.deepcopy(swps.method), pickle.loads(pickle.dumps(swps.method))):  # noqa: S301 - our own bytes
        assert twin == swps.method and not twin.spec.flags.writeable
        Calibrator(twin).run([0.5], [1])
    for scores in ([0.5, 1], np.float32([0.5, 0.25]), frozen, frozen[::2], columns, (0.5,)):
        outcomes = [True] * len(scores)
        swps.run(scores, outcomes)
        swps.run(scores, outcomes, due=np.arange(1, len(scores) + 1, dtype=np.uint8))
        swps.predict_many(scores)
    assert {"run", "run_late", "predict_many"} <= set(_jit.dispatchers())
    for name, dispatcher in _jit.dispatchers().items():
        assert len(dispatcher.signatures) == 1, (name, dispatcher.signatures)
