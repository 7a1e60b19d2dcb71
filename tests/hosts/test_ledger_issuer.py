"""The name on a receipt is that of method, seed and stream; the generations behind it tell copies apart."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from calibeat import AUTO, GAUTO, OPS, TOPS, Calibrator, Guard, InvalidInput, Lanes, Tracking
from calibeat.hosts import ledger
from calibeat.hosts.ledger import Issuer


def test_calibrators_have_one_name_only_if_they_are_made_alike() -> None:
    methods = [AUTO, GAUTO, OPS, TOPS, replace(AUTO, learner=Lanes(horizon=False))]
    methods += [replace(TOPS, calibeater=Tracking(bins=20)), replace(GAUTO, guard=Guard(slack=0.5))]
    made = [(method, seed, stream) for method in methods for seed in (0, 7) for stream in (0, "paris")]
    names = [Calibrator(*each).predict(0.5).issuer for each in made]
    assert len(set(names)) == len(made) and names == [Calibrator(*each).predict(0.5).issuer for each in made]


@pytest.mark.parametrize("stream", [np.str_("paris"), type("Name", (str,), {"__repr__": lambda _: "?"})("paris")])
def test_any_kind_of_string_names_the_same_stream(stream: Any) -> None:
    cal, plain = Calibrator("hops", stream=stream), Calibrator("hops", stream="paris")
    assert cal.predict(0.5) == plain.predict(0.5)
    restored, receipt = Calibrator.from_json(cal.to_json()), plain.predict(0.5)
    scores, outcomes = np.linspace(0, 1, 50), np.arange(50) % 2
    assert cal.predict(0.5) == receipt
    assert cal.run(scores, outcomes).tolist() == plain.run(scores, outcomes).tolist()
    restored.update(Calibrator("hops", stream="paris").predict(0.5), 1)


def test_generations() -> None:
    issuer = Issuer("0123456789abcdef")
    issuer.begin_generation(0)  # restored before the first event: a generation of its own
    assert (
        issuer.signature == ""
        and issuer.ensure_signature("0000000a") == issuer.ensure_signature() == "0123456789abcdef-0000000a"
    )
    issuer.begin_generation(5)
    issuer.begin_generation(5)
    assert [first for first, _ in issuer.generations] == [0, 5]
    assert issuer.dump(5, 0) == [[0, "0000000a"]] and issuer.dump(6, 5) == [[5, None]]
    twin = Issuer.load("0123456789abcdef", [[3, "0000000a"], [7, None]], 9)
    assert twin.issued(1, "anybody's") and twin.issued(4, "0123456789abcdef-0000000a")
    assert not twin.issued(8, "0123456789abcdef-0000000a")
    assert twin.is_own("0123456789abcdef-00000000") and not twin.is_own("0123456789abcde")


@pytest.mark.parametrize(
    "data",
    [
        None,
        {},
        [[0]],
        [[0, 7]],
        [["x", ""]],
        [[-1, ""]],
        [[10, ""]],
        [[3, ""], [2, ""]],
        [[0, "short"]],
        [7],
        [[0, ""]] * 65,
    ],
)
def test_generations_that_cannot_be(data: Any) -> None:
    with pytest.raises(InvalidInput, match="generation"):
        Issuer.load("0123456789abcdef", data, 9)


def test_a_random_generation_is_never_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger.secrets, "randbelow", lambda _: 0)
    cal = Calibrator.from_json(Calibrator(OPS).to_json())
    assert cal.predict(0.5).issuer.endswith("-00000001")
