"""Every method on every kind of stream does what `conformance` says."""

from __future__ import annotations

import copy
import pickle
from itertools import pairwise

import numpy as np
import pytest
from conformance import CHECKS, Check, cases_of, cases_of_classes, cases_of_models, same
from streams import STREAMS, extremes, variants

from calibeat import Calibrator, Method

METHODS = variants() | extremes()


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS.keys())
def test_conformance(check: Check, method: Method) -> None:
    for case in cases_of(method):
        check(case)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("method", ["raw", "ots", "multi"])
@pytest.mark.parametrize("K", [2, 3, 10, 65, 300])
def test_conformance_of_classes(check: Check, K: int, method: str) -> None:
    for case in cases_of_classes(K, method):
        check(case)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("k", [2, 3, 8, 16])
def test_conformance_of_models(check: Check, k: int) -> None:
    for case in cases_of_models(k):
        check(case)


@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS.keys())
def test_the_numbers_of_a_forecast_are_of_python(method: Method) -> None:
    cal = Calibrator(method, seed=2)
    cal.run(*STREAMS["drifting"]())
    for last in (cal.predict(0.3), cal.predict(np.float64(0.3)), cal.predict(np.float32(0.5)), cal.predict(1)):
        numbers = *last.lanes, last.probability, last.expert, last.score, *(x for pair in last.candidates for x in pair)
        assert all(type(number) is float for number in numbers)
        assert all(type(number) is int for number in (last.bin, last.cell, last.event, last.seen))


def test_draws_do_not_depend_on_batching() -> None:
    scores, outcomes = STREAMS["random"]()
    whole = Calibrator("hops", seed=9).run(scores, outcomes)
    pieces = Calibrator("hops", seed=9)
    cuts = [0, 1, 2, 50, 51, 200, 300]
    same(whole, np.concatenate([pieces.run(scores[a:b], outcomes[a:b]) for a, b in pairwise(cuts)]))
    assert (whole != Calibrator("hops", seed=10).run(scores, outcomes)).any()
    assert (whole != Calibrator("hops", seed=9, stream="other").run(scores, outcomes)).any()


@pytest.mark.parametrize("name", ["auto", "hops", "swps"])
def test_every_form_of_a_column_is_the_same_to_the_core(name: str) -> None:
    """Read-only, with strides, not aligned, of other types: it reads contiguous float64 and nothing else."""
    frozen = np.linspace(0, 1, 5)
    frozen.flags.writeable = False
    columns = np.rec.fromarrays([np.full(3, b"x"), np.full(3, 0.5)])["f1"]  # neither contiguous nor aligned
    method = Calibrator(name).method
    for twin in (method, copy.deepcopy(method), pickle.loads(pickle.dumps(method))):  # noqa: S301 - our own bytes
        assert twin == method and twin.spec == method.spec
        for scores in ([0.5, 1], np.float32([0.5, 0.25]), frozen, frozen[::2], columns, (0.5,)):
            ours, theirs = Calibrator(twin, seed=3), Calibrator(method, seed=3)
            plain = [float(score) for score in scores]
            due = np.arange(1, len(plain) + 1, dtype=np.uint8)
            same(ours.run(scores, [True] * len(plain)), theirs.run(plain, [1] * len(plain)))
            same(ours.run(scores, np.ones(len(plain)), due=due), theirs.run(plain, [1] * len(plain), due=due.tolist()))
            same(ours.predict_many(scores), theirs.predict_many(plain))
            same(ours.row.copy(), theirs.row.copy())
