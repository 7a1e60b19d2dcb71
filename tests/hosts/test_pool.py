"""The pooled start: a new key begins where all the others have led."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from banks import IN_A_ROW, OTHERS, events
from conformance import same

from calibeat import AIOLI, AUTO, OGD, OPS, TOPS, Bank, Calibrator, Method, Temperature


def test_a_new_key_starts_where_the_pool_is() -> None:
    keys, scores, outcomes = events(600, 30)
    for method in (OPS, replace(OPS, learner=AIOLI()), replace(OPS, learner=OGD()), Method(Temperature(), AIOLI())):
        bank, pool = Bank(method, prior="pooled"), Calibrator(method)
        bank.run(keys, scores, outcomes)
        pool.run(scores, outcomes)
        bank.predict(99, 0.5)
        assert bank[99].params == pytest.approx(pool.params)
        assert bank[99].outcomes == 0
        same(bank.predict_many([100], [0.3]), np.array([bank.predict(100, 0.3).probability]))


def test_the_pooled_start_helps_young_keys() -> None:
    rng = np.random.default_rng(1)
    keys = rng.permutation(np.repeat(np.arange(300), 20))
    x = rng.normal(0, 1.5, len(keys))
    truth = 1 / (1 + np.exp(-(rng.normal(0.6, 0.2, 300)[keys] * x + rng.normal(-0.5, 0.5, 300)[keys])))
    scores, outcomes = 1 / (1 + np.exp(-x)), (rng.random(len(keys)) < truth).astype(float)
    for method in (OPS, TOPS, AUTO):
        alone, pooled = Bank(method), Bank(method, prior="pooled")
        alone.run(keys, scores, outcomes)
        pooled.run(keys, scores, outcomes)
        assert pooled.table["log_loss"].mean() < alone.table["log_loss"].mean()


def test_rows_of_a_pooled_start_are_sound() -> None:
    keys, scores, outcomes = events(300, 5)
    for name, method in {**IN_A_ROW, **OTHERS}.items():
        bank = Bank(method, prior="pooled")
        bank.run(keys, scores, outcomes)
        bank.predict(99, 0.5)
        for key in (99, int(keys[0])):
            twin = Calibrator.from_json(bank[key].to_json())
            assert twin.to_json() == bank[key].to_json(), name
