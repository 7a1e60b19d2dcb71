"""The host of many classes: receipts, late labels, batches, what it believes."""

from __future__ import annotations

import copy
import pickle
import threading

import multi_streams
import numpy as np
import pytest

from calibeat import AUTO, Calibrator, InvalidInput, MultiCalibrator, MultiForecast, OutcomeConflict, UnknownForecast

CLASSES = ["cat", "dog", "bird"]
METHODS = ["raw", "ots", "multi"]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("K", [2, 3, 7, 65])
def test_first_forecast_is_the_score(method: str, K: int) -> None:
    score = np.random.default_rng(K).dirichlet(np.ones(K))
    forecast = MultiCalibrator(K, method).predict(score)
    np.testing.assert_allclose(forecast.probabilities, score, rtol=0, atol=K * 1e-7)
    assert forecast.label == int(score.argmax())
    assert forecast.confidence == forecast.probabilities.max()


@pytest.mark.parametrize("kind", ["now", "fixed", "reordered"])
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("K", [2, 3, 65])
def test_event_by_event_is_batch_is_resumed(K: int, method: str, kind: str) -> None:
    n = 60
    scores, labels = multi_streams.drifting(n, K)
    due = None if kind == "now" else multi_streams.delays(n, kind)
    batch, single = MultiCalibrator(K, method), MultiCalibrator(K, method)
    P = batch.run(scores, labels, due=due)
    np.testing.assert_array_equal(P, multi_streams.by_event(single, scores, labels, due))
    np.testing.assert_array_equal(batch.row, single.row)
    assert (batch.events, batch.outcomes, batch.evidence) == (single.events, single.outcomes, single.evidence)
    if kind == "now":
        half = MultiCalibrator(K, method)
        first = half.run(scores[:31], labels[:31])
        resumed = MultiCalibrator.from_json(half.to_json())
        np.testing.assert_array_equal(np.concatenate([first, resumed.run(scores[31:], labels[31:])]), P)
        np.testing.assert_array_equal(resumed.row, batch.row)


@pytest.mark.parametrize("K", [2, 3, 65])
def test_a_run_may_finish_what_is_under_way(K: int) -> None:
    scores, labels = multi_streams.drifting(40, K)
    due = multi_streams.delays(40, "reordered")
    batch, single = MultiCalibrator(K), MultiCalibrator(K)
    P = batch.run(scores, labels, due=due, finish=True)
    assert batch.outcomes == 40
    order, waiting = sorted(range(40), key=lambda i: (due[i], i)), {}
    for i in range(41):
        while order and (due[order[0]] <= i or i == 40):
            j = order.pop(0)
            single.update(waiting[j], int(labels[j]))
        if i < 40:
            waiting[i] = single.predict(scores[i])
            np.testing.assert_array_equal(waiting[i].probabilities, P[i])
    np.testing.assert_array_equal(batch.row, single.row)


@pytest.mark.parametrize("K", [2, 4])
def test_receipts_travel_as_json(K: int) -> None:
    scores, labels = multi_streams.drifting(40, K)
    alive, travelled = MultiCalibrator(K), MultiCalibrator(K)
    kept = [(alive.predict(s), travelled.predict(s).to_json()) for s in scores]
    for i in np.random.default_rng(0).permutation(40):
        alive.update(kept[i][0], int(labels[i]))
        travelled.update(MultiForecast.from_json(kept[i][1]), int(labels[i]))
    np.testing.assert_array_equal(alive.row, travelled.row)
    assert alive.evidence == travelled.evidence


@pytest.mark.parametrize("K", [2, 3])
def test_receipts_survive_a_restart(K: int) -> None:
    scores, labels = multi_streams.random(20, K)
    cal = MultiCalibrator(K)
    kept = [cal.predict(s) for s in scores]
    twin = MultiCalibrator.from_json(cal.to_json())
    for forecast, label in zip(kept, labels, strict=True):
        cal.update(forecast, int(label))
        twin.update(forecast, int(label))
    np.testing.assert_array_equal(cal.row, twin.row)
    newer = cal.predict(scores[0])
    twin.predict(scores[0])
    with pytest.raises(UnknownForecast, match="a copy of it has made"):
        twin.update(newer, 0)


@pytest.mark.parametrize("K", [2, 3])
def test_a_repeat_changes_nothing_and_a_contradiction_is_a_conflict(K: int) -> None:
    cal = MultiCalibrator(K)
    forecast = cal.predict(np.full(K, 1.0 / K))
    cal.update(forecast, 1)
    row = cal.row
    for again in (forecast, MultiForecast.from_json(forecast.to_json()), copy.deepcopy(forecast)):
        cal.update(again, 1)
        with pytest.raises(OutcomeConflict, match="label must be the one already learnt, 1, got 0 - at event 0"):
            cal.update(again, 0)
    np.testing.assert_array_equal(cal.row, row)
    twin = MultiCalibrator.from_json(cal.to_json())
    twin.update(MultiForecast.from_json(forecast.to_json()), 1)
    with pytest.raises(OutcomeConflict):
        twin.update(MultiForecast.from_json(forecast.to_json()), 0)
    assert twin.outcomes == 1


def test_events_of_a_batch_are_settled_too() -> None:
    alike, cal = MultiCalibrator(3, stream="a"), MultiCalibrator(3, stream="a")
    _, second = alike.predict([0.2, 0.3, 0.5]), alike.predict([0.2, 0.3, 0.5])
    first = cal.predict([0.2, 0.3, 0.5])
    cal.run([[0.2, 0.3, 0.5]] * 3, [0, 1, 2], due=[2, 9, 3])
    assert (cal.events, cal.outcomes) == (4, 1)
    cal.update(first, 2)
    assert cal.outcomes == 2
    assert cal.update(second, 0) == "repeated"
    with pytest.raises(OutcomeConflict):
        cal.update(second, 2)


def test_labels_are_those_of_the_classes() -> None:
    scores, labels = multi_streams.random(50, 3)
    words = MultiCalibrator(CLASSES)
    P = words.run(scores, [CLASSES[y] for y in labels])
    np.testing.assert_array_equal(P, MultiCalibrator(3).run(scores, labels))
    assert words.classes == tuple(CLASSES)
    assert words.predict([0.1, 0.2, 0.7]).label == "bird"
    np.testing.assert_array_equal(P, MultiCalibrator(np.array(CLASSES)).run(scores, np.array(CLASSES)[labels]))
    np.testing.assert_array_equal(P, MultiCalibrator([10, 20, 30]).run(scores, (labels + 1) * 10))
    np.testing.assert_array_equal(P, MultiCalibrator(3).run(scores.tolist(), labels.astype(float)))


def test_logits() -> None:
    logits = np.random.default_rng(1).normal(0, 3, (40, 4))
    labels = np.arange(40) % 4
    e = np.exp(logits)
    P = MultiCalibrator(4, logits=True).run(logits, labels)
    np.testing.assert_allclose(P, MultiCalibrator(4).run(e / e.sum(axis=1, keepdims=True), labels), atol=1e-12)
    shifted = MultiCalibrator(4, logits=True).predict(logits[0] + 1e6).probabilities
    np.testing.assert_allclose(shifted, P[0], atol=1e-8)
    extreme = MultiCalibrator(4, logits=True).predict([1e299, -1e299, 0.0, 5.0]).probabilities
    assert (extreme > 0.0).all() and extreme[0] > 0.999


def test_scores_are_normalised() -> None:
    score = np.array([0.2, 0.3, 0.5]) * (1.0 + 9e-7)
    forecast = MultiCalibrator(3).predict(score)
    assert abs(forecast.score.sum() - 1.0) <= 1e-15
    np.testing.assert_allclose(forecast.score, [0.2, 0.3, 0.5], atol=1e-16)
    single = MultiCalibrator(3).predict(np.array([0.2, 0.3, 0.5], dtype=np.float32))
    assert abs(single.probabilities.sum() - 1.0) <= 1e-12


def test_two_classes_are_served_by_auto() -> None:
    scores, labels = multi_streams.drifting(150, 2)
    P = MultiCalibrator(["no", "yes"]).run(scores, np.array(["no", "yes"])[labels])
    p = Calibrator(AUTO).run(scores[:, 1], labels)
    np.testing.assert_array_equal(P[:, 1], p)
    np.testing.assert_array_equal(P[:, 0], 1.0 - p)
    cal = MultiCalibrator(["no", "yes"])
    assert set(cal.params["bias"]) == {"no", "yes"} and cal.params["lanes"]["still"] == 1 / 6
    forecast = cal.predict([0.4, 0.6])
    with pytest.raises(InvalidInput, match="forecast must be as it was issued, got a damaged one"):
        cal.update(MultiForecast.from_dict({**forecast.to_dict(), "binary": None}), "no")
    assert cal.outcomes == 0


def test_predict_many_and_peek_change_nothing() -> None:
    scores, labels = multi_streams.random(60, 5)
    cal = MultiCalibrator(5)
    cal.run(scores, labels)
    before = cal.to_json()
    many = cal.predict_many(scores[:7])
    assert cal.to_json() == before
    np.testing.assert_array_equal(many[3], cal.peek(scores[3]))
    np.testing.assert_array_equal(many[3], cal.predict(scores[3]).probabilities)


def test_looking_between_forecast_and_label_changes_no_bits() -> None:
    scores, labels = multi_streams.random(30, 4)
    one, two = MultiCalibrator(4), MultiCalibrator(4)
    for s, y in zip(scores, labels, strict=True):
        f, g = one.predict(s), two.predict(s)
        two.peek(scores[0])
        one.update(f, int(y))
        two.update(g, int(y))
    np.testing.assert_array_equal(one.row, two.row)


def test_params_in_words() -> None:
    rng = np.random.default_rng(2)
    truth = rng.dirichlet(np.ones(3), 3000)
    shifted = multi_streams.normalised(truth * [4.0, 1.0, 1.0])  # cats became four times as common
    cal = MultiCalibrator(CLASSES)
    cal.run(truth, [CLASSES[y] for y in multi_streams.drawn(rng, shifted)])
    params = cal.params
    assert list(params["lanes"]) == ["still", "slow", "fast", "priors only", "raw score", "online temperature"]
    assert sum(params["lanes"].values()) == pytest.approx(1.0)
    bias = params["bias"]
    assert np.exp(bias["cat"] - bias["dog"]) == pytest.approx(4.0, rel=0.2)
    for part in ("stages", "top", "guard"):
        assert sum(params[part].values()) == pytest.approx(1.0)
    assert set(MultiCalibrator(65).params["stages"]) == {"lanes", "factors"}
    assert MultiCalibrator(3, "ots").params == {"a": 1.0}
    assert MultiCalibrator(3, "raw").params == {}


@pytest.mark.parametrize(("method", "width"), [("raw", 2), ("ots", 4), ("multi", 183)])
def test_the_row(method: str, width: int) -> None:
    cal = MultiCalibrator(3, method)
    cal.predict([0.2, 0.3, 0.5])
    assert len(cal.row) == width
    cal.run([[0.2, 0.3, 0.5]], [1])
    assert cal.row[:2].tolist() == [2.0, 1.0]
    with pytest.raises(ValueError, match="read-only"):
        cal.row[0] = 7.0


@pytest.mark.parametrize(("K", "width"), [(3, 183), (10, 505), (26, 1977), (64, 9577), (100, 2105), (1000, 20105)])
def test_widths(K: int, width: int) -> None:
    assert len(MultiCalibrator(K).row) == width


@pytest.mark.parametrize("method", METHODS)
def test_evidence_is_the_log_likelihood_ratio(method: str) -> None:
    scores, labels = multi_streams.random(300, 4)
    cal = MultiCalibrator(4, method)
    P = cal.run(scores, labels)
    at = np.arange(300)
    assert cal.evidence == pytest.approx(np.log(P[at, labels] / scores[at, labels]).sum(), abs=1e-9)


def test_no_alarm_for_calibrated_scores() -> None:
    """Ville: at most one stream in twenty."""
    rng = np.random.default_rng(3)
    alarms = 0
    for _ in range(200):
        scores = rng.dirichlet([0.3, 0.3, 0.3, 0.05], 60)
        cal = MultiCalibrator(4)
        cal.run(scores, multi_streams.drawn(rng, scores))
        alarms += cal.evidence >= np.log(20.0)
    assert alarms <= 15


def test_threads_may_share_it() -> None:
    cal = MultiCalibrator(3)
    scores, labels = multi_streams.random(200, 3)
    kept: list[MultiForecast] = []

    def work(part: int) -> None:
        for i in range(part, 200, 4):
            forecast = cal.predict(scores[i])
            kept.append(forecast)
            cal.update(forecast, int(labels[i]))

    threads = [threading.Thread(target=work, args=(part,)) for part in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (cal.events, cal.outcomes) == (200, 200)
    assert sorted(f.event for f in kept) == list(range(200))
    assert MultiCalibrator.from_json(cal.to_json()).to_json() == cal.to_json()  # a row that can be


def test_all_or_nothing() -> None:
    cal = MultiCalibrator(3)
    cal.run([[0.2, 0.3, 0.5]], [1])
    before = cal.to_json()
    bad = [[0.2, 0.3, 0.5], [0.2, 0.3, 0.6]]
    for scores, labels in ((bad, [0, 0]), ([[0.2, 0.3, 0.5]] * 2, [0, 3])):
        with pytest.raises(InvalidInput):
            cal.run(scores, labels)
    assert cal.to_json() == before


def test_copies_and_repr() -> None:
    cal = MultiCalibrator(CLASSES, method="ots", logits=True)
    cal.run([[0.0, 1.0, 2.0]], ["dog"])
    for twin in (copy.deepcopy(cal), pickle.loads(pickle.dumps(cal))):  # noqa: S301 - our own bytes
        assert twin.to_json() == cal.to_json()
    assert repr(cal) == "MultiCalibrator(3 classes, method='ots', events=1, outcomes=1)"
    assert (cal.method, cal.logits) == ("ots", True)
