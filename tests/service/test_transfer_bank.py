"""States between bank files and stores: the streams go on with the same bits, and a replay knows where they began."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace

import multi_streams
import numpy as np
import pytest
from services import START, desk

from calibeat import TOPS, Bank, InvalidInput, MultiBank, Tracking, UnknownMethod
from calibeat.service import maintenance
from calibeat.service.events import ForecastEvent, OutcomeEvent
from calibeat.service.store import open_reader
from calibeat.service.store.queries import overview, view
from calibeat.service.transfer import export_bank, import_bank

SCORES = np.random.default_rng(3).random(120)
KEYS = [f"s{at % 3}" for at in range(120)]
OUTCOMES = (np.random.default_rng(4).random(120) < SCORES**2).astype(float)


def trained(method="tops", keys=KEYS, **settings):
    bank = Bank(method, **settings)
    bank.run(keys, SCORES, OUTCOMES)
    return bank


@pytest.fixture
def saved(tmp_path):
    def save(bank):
        bank.save(tmp_path / "history.bank")
        return tmp_path / "history.bank"

    return save


def told(service, keys=KEYS, late=False):
    """Forecasts of a service for the same scores again, each with its outcome."""
    found = []
    for at, (key, score, outcome) in enumerate(zip(keys, SCORES.tolist(), OUTCOMES.astype(int).tolist(), strict=True)):
        found += service.ask((key, f"e{at}", score))
        if not late or at % 7:
            service.tell((key, f"e{at}", outcome))
    return found


@pytest.mark.parametrize(("method", "settings"), [("tops", {}), ("auto", {}), ("hops", {"seed": 7})])
def test_a_service_goes_on_where_a_bank_was(url, saved, method, settings):
    bank = trained(method, **settings)
    assert import_bank(url, saved(bank)) == 3
    assert maintenance.info(url)["forecasts"] == 120 and maintenance.info(url)["outcomes"] == 120
    assert maintenance.replay_check(url).is_same and maintenance.check(url) == []
    with desk(url, method=None) as service:
        found = told(service)
    assert found == bank.run(KEYS, SCORES, OUTCOMES).tolist()
    assert maintenance.replay_check(url).is_same and maintenance.check(url) == []


def test_a_bank_goes_on_where_a_service_was(url, tmp_path):
    with desk(url, method="hops", seed=5) as service:
        told(service, late=True)
        assert export_bank(url, tmp_path / "now.bank") == 3  # while the service runs
        again = [p for at, key in enumerate(KEYS) for p in service.ask((key, f"later{at}", 0.3))]
    bank = Bank.load(tmp_path / "now.bank")
    assert again == [bank.predict(key, 0.3).probability for key in KEYS]
    assert (bank.seed, bank.events) == (5, 240)


def test_from_a_store_to_a_store(url, tmp_path):
    with desk(url) as service:
        told(service)
    export_bank(url, tmp_path / "now.bank")
    assert import_bank(str(tmp_path / "other.db"), tmp_path / "now.bank") == 3
    export_bank(str(tmp_path / "other.db"), tmp_path / "again.bank")
    assert Bank.load(tmp_path / "again.bank").rows(KEYS[:3]).tobytes() == (
        Bank.load(tmp_path / "now.bank").rows(KEYS[:3]).tobytes()
    )


def test_an_empty_store_and_an_empty_bank(tmp_path):
    with desk(str(tmp_path / "a.db")):
        pass
    assert export_bank(str(tmp_path / "a.db"), tmp_path / "empty.bank") == 0
    assert import_bank(str(tmp_path / "b.db"), tmp_path / "empty.bank") == 0
    assert maintenance.info(str(tmp_path / "b.db"))["method"] == "tops"


def test_monitors_begin_anew_and_are_replayed(url, saved):
    path = saved(trained(keys=[f"old{at % 3}" for at in range(120)]))
    with desk(url, monitor=1000.0) as service:
        told(service)
    import_bank(url, path)
    with desk(url, monitor=1000.0) as service:
        service.play(200)
        for at in range(60):
            service.ask(("old1", f"o{at}", 0.9))
            service.tell(("old1", f"o{at}", 0))
    assert maintenance.replay_check(url).is_same


def test_another_method_begins_anew_and_old_events_go(url, saved):
    import_bank(url, saved(trained()))
    with desk(url) as service:
        told(service)
        now = service.now
    maintenance.rebuild(url, "ops")
    assert maintenance.replay_check(url).is_same and maintenance.check(url) == []
    assert maintenance.prune(url, 0.0, now + 1.0) == 120
    assert maintenance.replay_check(url).is_same and maintenance.check(url) == []


def test_the_dashboard_shows_a_stream_that_has_only_a_state(url, saved):
    import_bank(url, saved(trained()))
    with closing(open_reader(url)) as reader:
        shown, all_streams = view(reader, START, "s1"), overview(reader, START)
    assert (all_streams.streams, all_streams.error, all_streams.rows[0].last_event) == (3, None, None)
    assert shown.stream.events == 40 and shown.stream.pending == 0
    assert shown.series.start == [] and shown.stream.log_loss == pytest.approx(trained().table["log_loss"][1])


@pytest.mark.parametrize(
    ("bank", "message"),
    [
        (lambda: trained("ops"), "must have the method and the seed of the store, 'tops' and 0, got 'ops' and 0"),
        (lambda: trained(seed=3), "'tops' and 0, got 'tops' and 3"),
        (lambda: trained(replace(TOPS, calibeater=Tracking(bins=20))), "must be of a method that has a name"),
        (lambda: trained("hops", keys=[at % 3 for at in range(120)]), "must have keys of text, got numbers"),
        (lambda: trained(keys=["a" * 300] * 120), "key must be a text of 1 to"),
        (trained, "keys must be new to the store, got 's0', which has events there"),
    ],
)
def test_what_cannot_go_on_is_refused_whole(tmp_path, saved, bank, message):
    store = str(tmp_path / "calibeat.db")
    with desk(store) as service:
        service.ask(("s0", "e1", 0.3))
    before = maintenance.info(store)
    with pytest.raises(InvalidInput, match=message):
        import_bank(store, saved(bank()))
    assert maintenance.info(store) == before
    with pytest.raises(InvalidInput, match="method must be that of the bank, 'tops', got 'ops'"):
        import_bank(store, saved(trained()), "ops")


def test_numbers_as_keys_become_text(tmp_path, saved):
    keys = [at % 3 for at in range(120)]
    bank = trained(keys=keys)
    import_bank(str(tmp_path / "a.db"), saved(bank))
    with desk(str(tmp_path / "a.db")) as service:
        assert told(service, [str(key) for key in keys]) == bank.run(keys, SCORES, OUTCOMES).tolist()


# ---- many classes ----------------------------------------------------------------------------------------------------


def of_classes(classes, method="multi", logits=False):
    """A bank of these classes, and the scores and labels that it has seen."""
    bank = MultiBank(classes, method, logits)
    scores, columns = multi_streams.drifting(120, len(bank.classes))
    labels = [bank.classes[k] for k in columns.tolist()]
    bank.run(KEYS, scores, labels)
    return bank, scores, labels


@pytest.mark.parametrize("classes", [3, ["dog", "cat", "bird"], ["no", "yes"], 2])
def test_a_service_goes_on_where_a_multi_bank_was_and_back(url, saved, tmp_path, classes):
    bank, scores, labels = of_classes(classes)
    assert import_bank(url, saved(bank)) == 3
    assert maintenance.replay_check(url).is_same and maintenance.check(url) == []
    found = []
    with desk(url, method=None) as service:
        for at, (key, score, label) in enumerate(zip(KEYS, scores.tolist(), labels, strict=True)):
            given = score if isinstance(classes, int) else dict(zip(classes, score, strict=True))
            (answer,) = service._only([ForecastEvent(key, f"e{at}", scores=given)])
            found.append(answer if isinstance(classes, int) else [answer[name] for name in classes])
            service._only([OutcomeEvent(key, f"e{at}", label=label)])
    assert found == bank.run(KEYS, scores, labels).tolist()
    assert maintenance.replay_check(url).is_same and maintenance.check(url) == []
    assert export_bank(url, tmp_path / "now.bank") == 3
    back = MultiBank.load(tmp_path / "now.bank")
    assert back.classes == bank.classes and back.predict_many(KEYS, scores).tolist() == (
        bank.predict_many(KEYS, scores).tolist()
    )


def test_a_store_of_any_method_takes_many_classes(url, tmp_path):
    with desk(url) as service:  # tops
        told(service)
    of_classes(3)[0].save(tmp_path / "three.bank")
    with pytest.raises(InvalidInput, match="keys must be new to the store, got 's0'"):
        import_bank(url, tmp_path / "three.bank")
    other = MultiBank(3)
    other.run(["x"], [[0.2, 0.3, 0.5]], [1])
    other.save(tmp_path / "other.bank")
    assert import_bank(url, tmp_path / "other.bank") == 1
    assert export_bank(url, tmp_path / "now.bank") == 3  # one of three classes is no key among those of two
    of_classes(["no", "yes"])[0].save(tmp_path / "pair.bank")
    with pytest.raises(InvalidInput, match="must have the method and the seed of the store, 'tops' and 0, got 'auto'"):
        import_bank(url, tmp_path / "pair.bank")


@pytest.mark.parametrize(
    ("classes", "method", "logits", "message"),
    [
        (3, "ots", False, "must be of multi and take probabilities, as a service does, got ots - in"),
        (3, "multi", True, "got multi of logits - in"),
        ([10, 20, 30], "multi", False, r"classes must be names, or the numbers of the columns, got \[10, 20, 30\]"),
    ],
)
def test_classes_that_a_service_does_not_serve(tmp_path, classes, method, logits, message):
    of_classes(classes, method, logits)[0].save(tmp_path / "a.bank")
    with pytest.raises(InvalidInput, match=message):
        import_bank(str(tmp_path / "calibeat.db"), tmp_path / "a.bank")


def test_a_new_store_for_many_classes_has_a_method_of_its_own(tmp_path):
    of_classes(3)[0].save(tmp_path / "a.bank")
    with pytest.raises(UnknownMethod, match="topps"):
        import_bank(str(tmp_path / "new.db"), tmp_path / "a.bank", "topps")
    assert not (tmp_path / "new.db").exists()
    assert import_bank(str(tmp_path / "new.db"), tmp_path / "a.bank", "TOPS") == 3
    assert maintenance.info(str(tmp_path / "new.db"))["method"] == "tops"


def test_streams_of_different_classes_are_not_one_bank(url, tmp_path):
    with desk(url, method="auto") as service:
        service._only([ForecastEvent("a", "1", scores=[0.2, 0.3, 0.5])])
        service._only([ForecastEvent("b", "1", scores={"cat": 0.5, "dog": 0.5})])
        service._only([ForecastEvent("c", "1", score=0.5, groups={"device": "x"})])
    with pytest.raises(InvalidInput, match=r"must have the same classes .* got the column numbers 0 to 2 and the 2"):
        export_bank(url, tmp_path / "now.bank")


def test_a_bank_with_bands_needs_a_store_with_bands(url, saved):
    with desk(url, method="auto") as service:
        service.ask(("other", "e1", 0.5))
    with pytest.raises(InvalidInput, match="band of the store must be that of the bank, on"):
        import_bank(url, saved(trained("auto", band=True)))
