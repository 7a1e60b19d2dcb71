"""A method of one's own behind the face of a `Calibrator`."""

from __future__ import annotations

import pickle
from collections.abc import Callable

import numpy as np
import pytest
from interrupts import interrupted_everywhere
from streams import drifting

from calibeat import Calibrator, Forecast, InvalidInput, OutcomeConflict, UnknownForecast
from calibeat._compiled import KEPT_EVENTS
from calibeat.rivals import Host, Rival

N = 300
SCORES, OUTCOMES = drifting(N)


class Ours:
    """OPS behind the protocol: what it forecasts is known."""

    def __init__(self) -> None:
        self.calibrator = Calibrator("ops")
        self.given: dict[float, Forecast] = {}

    def predict(self, score: float) -> float:
        self.given[score] = self.calibrator.predict(score)
        return self.given[score].probability

    def update(self, score: float, outcome: float) -> None:
        self.calibrator.update(self.given.pop(score), outcome)


class Share:
    def __init__(self) -> None:
        self.ones, self.all = 1.0, 2.0

    def predict(self, score: float) -> float:  # noqa: ARG002 - it ignores the score
        return self.ones / self.all

    def update(self, score: float, outcome: float) -> None:  # noqa: ARG002
        self.ones, self.all = self.ones + outcome, self.all + 1.0


def test_a_host_is_a_calibrator() -> None:
    assert isinstance(Ours(), Rival)
    due = np.arange(N) + 1 + np.random.default_rng(0).integers(0, 30, N)
    assert Host(Ours).run(SCORES, OUTCOMES).tolist() == Calibrator("ops").run(SCORES, OUTCOMES).tolist()
    late = Host(Ours).run(SCORES, OUTCOMES, due=due)
    assert late.tolist() == Calibrator("ops").run(SCORES, OUTCOMES, due=due).tolist()
    host, calibrator = Host(Ours), Calibrator("ops")
    for score, y in zip(SCORES.tolist(), OUTCOMES, strict=True):
        ours, theirs = host.predict(score), calibrator.predict(score)
        assert ours.probability == theirs.probability and ours > -1.0
        host.update(ours, y)
        calibrator.update(theirs, y)
    assert (host.events, host.outcomes) == (N, N) and host.rival.calibrator.outcomes == N


def test_receipts_are_data_and_repeats_are_harmless() -> None:
    host = Host(Share)
    receipts = [host.predict(0.5).to_json() for _ in range(3)]
    for text in (receipts[2], receipts[0], receipts[2]):
        host.update(Forecast.from_json(text), 1)
    assert (host.events, host.outcomes) == (3, 2) and host.rival.all == 4.0
    with pytest.raises(OutcomeConflict, match="outcome must be 1, as it was learnt, got 0 - at event 2"):
        host.update(Forecast.from_json(receipts[2]), 0)
    with pytest.raises(UnknownForecast, match="one of the 3 that this host has made"):
        host.update(Host(Share).predict(0.5), 1)
    with pytest.raises(InvalidInput, match="forecast must be a Forecast made by predict, got float"):
        host.update(0.5, 1)  # type: ignore[arg-type]  # that is the mistake
    kept = pickle.loads(pickle.dumps(host))  # noqa: S301 - our own
    kept.update(Forecast.from_json(receipts[1]), 0)
    assert kept.outcomes == 3 and host.outcomes == 2


def test_an_object_is_copied_and_missing_outcomes_are_not_learnt() -> None:
    share = Share()
    host = Host(share)
    host.run([0.5, 0.5, 0.5], [1, None, float("nan")])
    assert share.all == 2.0 and host.rival.all == 3.0 and (host.events, host.outcomes) == (3, 1)
    host.run([0.5, 0.5], [1, 1], due=[1, 7])
    assert host.outcomes == 2  # the second is due behind the end


def test_a_batch_with_a_bad_forecast_has_not_happened() -> None:
    class Failing(Share):
        def predict(self, score: float) -> float:
            return 7.0 if score == 0.75 else super().predict(score)

    host = Host(Failing)
    receipt = host.predict(0.5)
    with pytest.raises(InvalidInput, match=r"rival must predict a probability in .*, got 7.0 - at event 3"):
        host.run([0.5, 0.5, 0.75, 0.5], [1, 1, 1, 1])
    assert (host.events, host.outcomes) == (1, 0) and host.rival.all == 2.0
    host.update(receipt, 1)
    assert host.run([0.5, 0.5], [1, 1]).tolist() == [2 / 3, 3 / 4]
    assert (host.events, host.outcomes) == (3, 3)


@pytest.mark.parametrize(
    ("rival", "said"),
    [
        (0.5, r"rival must have predict\(score\) and update\(score, outcome\), got 0.5"),
        (lambda: 3, "rival must make an object with predict"),
        (
            type("P", (), {"predict": lambda _, s: s + 1, "update": Share.update}),
            "must predict a probability in .*, got 1.5 - at event 0",
        ),
        (type("P", (), {"predict": lambda _, s: "x", "update": Share.update}), "got 'x' - at event 0"),  # noqa: ARG005
        (type("P", (), {"predict": lambda _, s: float("nan"), "update": Share.update}), "got nan - at event 0"),  # noqa: ARG005
    ],
)
def test_what_is_no_rival_is_refused(rival: object, said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        Host(rival).run([0.5], [1])


def test_an_interrupt_at_any_line_leaves_all_of_a_call_or_nothing() -> None:
    def made() -> tuple[Host, list[Forecast]]:
        host = Host(Share)
        host.run([0.5, 0.5], [1, None])
        return host, [host.predict(0.5) for _ in range(2)]

    def state(host: Host) -> tuple[float, int, int, list[int]]:
        settled = host._served.settled
        return host.rival.all, host.events, host.outcomes, [settled.mark(event) for event in range(9)]

    def served(made: tuple[Host, list[Forecast]]) -> None:
        made[0].update(made[0].predict(0.5), 1)

    acts: list[Callable[[tuple[Host, list[Forecast]]], object]] = [
        served,
        lambda made: made[0].update(made[1][1], 1),
        lambda made: made[0].run([0.5, 0.7, 0.2], [1, 0, 1], due=[1, 3, 7]),
    ]
    for act in acts:
        before, after, asked = made(), made(), made()
        act(after)
        asked[0].predict(0.5)
        allowed = [state(each[0]) for each in (before, after, asked)[: 3 if act is served else 2]]
        for host, receipts in interrupted_everywhere(made, act):
            assert state(host) in allowed
            for receipt in receipts:
                host.update(receipt, 1)  # once, if it has come
            assert host.outcomes - host.rival.all == -2.0


def test_marks_of_old_events_are_forgotten() -> None:
    host = Host(Share)
    first = host.predict(0.5)
    host.update(first, 1)
    host.run([0.5] * 20_000, [1] * 20_000)
    assert len(host._served.settled.packed()[2]) < 1.01 * KEPT_EVENTS
    host.update(first, 1)
    assert host.outcomes == 20_001
