"""The first event of a key: every verb of a bank gives what a calibrator of its own gives."""

from __future__ import annotations

from collections.abc import Callable
from math import nan
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from calibeat import Bank, Calibrator, MultiBank, MultiCalibrator

KEY = "oslo"
LOGITS = [[2.0, -1.0, 0.5], [-700.0, 0.0, 1.0], [0.0, 0.0, 0.0]]
PROBABILITIES = [[0.7, 0.1, 0.2], [0.0, 1.0, 0.0]]


def by_predict(bank: Any, score: Any) -> Any:
    return numbers(bank.predict(KEY, score))


def by_run(bank: Any, score: Any) -> Any:
    return bank.run([KEY], [score], [0])[0]


def by_run_without_outcome(bank: Any, score: Any) -> Any:
    return bank.run([KEY], [score], [nan])[0]


def by_fold(bank: Any, score: Any) -> Any:
    return bank.fold([KEY], [score], [nan]).forecasts[0]


def by_fold_of_two_keys(bank: Any, score: Any) -> Any:
    return bank.fold(["rome", KEY], [score, score], [nan, nan]).forecasts[1]


def by_predict_many(bank: Any, score: Any) -> Any:
    return bank.predict_many([KEY], [score])[0]


Verb = Callable[[Any, Any], Any]
READS: list[Verb] = [by_predict, by_predict_many]  # what a bank can do that cannot learn
VERBS: list[Verb] = [*READS, by_run, by_run_without_outcome, by_fold, by_fold_of_two_keys]


def numbers(forecast: Any) -> Any:
    """The probability of a forecast, or its probabilities."""
    return forecast.probabilities if hasattr(forecast, "probabilities") else forecast.probability


def read_only(bank: Any, folder: Path) -> Any:
    """The bank as a process sees it that maps its file."""
    bank.save(folder / "b.bank")
    return type(bank).load(folder / "b.bank", mmap=True)


def scores_of(K: int, *, logits: bool) -> list[Any]:
    """Scores of K classes, of which the first may be alone."""
    given = LOGITS if logits else PROBABILITIES if K == 3 else [[0.3, 0.7], [0.0, 1.0]]
    return [score[:K] for score in given]


@pytest.mark.parametrize("prior", [None, "pooled"])
@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("method", ["multi", "ots", "raw"])
@pytest.mark.parametrize("logits", [False, True])
@pytest.mark.parametrize("K", [2, 3])
def test_of_many_classes(K: int, logits: bool, method: str, verb: Verb, prior: str | None) -> None:
    for score in scores_of(K, logits=logits):
        bank, alone = MultiBank(K, method, logits=logits, prior=prior), MultiCalibrator(K, method, logits=logits)
        np.testing.assert_array_equal(verb(bank, score), alone.predict(score).probabilities)


@pytest.mark.parametrize("prior", [None, "pooled"])
@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("method", ["auto", "tops", "hops", "ops"])
def test_of_two_classes(method: str, verb: Verb, prior: str | None) -> None:
    for score in (0.3, 0.0, 1.0, 5e-324):
        bank, alone = Bank(method, prior=prior), Calibrator(method)
        assert verb(bank, score) == alone.predict(score).probability


@pytest.mark.parametrize("verb", READS)
@pytest.mark.parametrize("prior", [None, "pooled"])
@pytest.mark.parametrize("logits", [False, True])
@pytest.mark.parametrize("K", [2, 3])
def test_of_a_mapped_file(K: int, logits: bool, prior: str | None, verb: Verb, tmp_path: Path) -> None:
    bank = read_only(MultiBank(K, logits=logits, prior=prior), tmp_path)
    for score in scores_of(K, logits=logits):
        alone = MultiCalibrator(K, logits=logits)
        np.testing.assert_array_equal(verb(bank, score), alone.predict(score).probabilities)


@pytest.mark.parametrize("logits", [False, True])
@pytest.mark.parametrize("K", [2, 3])
def test_what_is_learnt_of_it(K: int, logits: bool) -> None:
    """The receipt of the first event holds the score as the method reads it, so its label is learnt rightly."""
    for score in scores_of(K, logits=logits):
        bank, alone = MultiBank(K, logits=logits), MultiCalibrator(K, logits=logits)
        given, own = bank.predict(KEY, score), alone.predict(score)
        np.testing.assert_array_equal(given.score, own.score)
        bank.update(KEY, given, 1)
        alone.update(own, 1)
        np.testing.assert_array_equal(bank.row(KEY), alone.row)
        assert bank[KEY].evidence == alone.evidence


@pytest.mark.parametrize("logits", [False, True])
@pytest.mark.parametrize("K", [2, 3])
def test_from_a_pool_that_has_learnt(K: int, logits: bool) -> None:
    """Every verb starts a new key from the pool as it was."""
    for score in scores_of(K, logits=logits):
        given = []
        for verb in VERBS:
            bank = MultiBank(K, logits=logits, prior="pooled")
            bank.run(["paris"] * 20, scores_of(K, logits=logits)[:1] * 20, [0, 1] * 10)
            given.append(verb(bank, score))
        assert (given[0] != MultiCalibrator(K, logits=logits).predict(score).probabilities).any()
        for other in given[1:]:
            np.testing.assert_array_equal(other, given[0])
