"""What is done to streams: freeze, resume, pass through, reset, copy, rename, delete. Replays and checks stay whole."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from services import DAY, SCORES, desk, desk_beside, feed, stream_of, told, whole

from calibeat.service import ops
from calibeat.service.events import Refusal
from calibeat.service.maintenance import info, prune, rebuild
from calibeat.service.store import open_connection, open_reader


@pytest.mark.parametrize(("method", "monitor"), [("tops", 1000.0), ("hops", None), ("auto", None)])
@pytest.mark.parametrize("outcomes", ["learn", "drop"])
def test_a_frozen_stream_forecasts_with_the_state_of_that_moment(
    url: str, method: str, monitor: float | None, outcomes: str
) -> None:
    with desk(url, method=method, monitor=monitor) as service:
        feed(service, 60)
        before = told(service, "before")
        assert service.do("freeze", "paris") == "frozen" == service.do("freeze", "paris")
        rng = np.random.default_rng(5)
        service.ask(*(("paris", f"f{at}", float(rng.random())) for at in range(40)))
        assert service.tell(*(("paris", f"f{at}", 1) for at in range(40))) == ["held"] * 40
        assert service.tell(*(("paris", f"f{at}", 1) for at in range(40))) == ["repeated"] * 40
        if method != "hops":  # which draws
            assert told(service, "frozen") == before
        stream = stream_of(url)
        assert stream.frozen and stream.state == "frozen" and stream.held == 40
        assert whole(url)
        assert service.do("resume", "paris", outcomes=outcomes) == "resumed"
        service.tick()
        stream = stream_of(url)
        assert stream.state == "learning" and stream.held == 0
        assert service.tell(("paris", "f3", 1)) == ["repeated" if outcomes == "learn" else "expired"]
        if method != "hops":
            assert (told(service, "after") == before) == (outcomes == "drop")
        feed(service, 30, seed=1)
    assert whole(url)


def test_what_waited_is_learnt_in_pieces(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("calibeat.service.engine.AGED_AT_ONCE", 7)
    with desk(url) as service:
        feed(service, 20)
        service.do("freeze", "paris")
        service.ask(*(("paris", f"f{at}", 0.5) for at in range(20)))
        service.tell(*(("paris", f"f{at}", at % 2) for at in range(20)))
        service.do("resume", "paris")
        service.tick()
        assert stream_of(url).state == "resuming" and stream_of(url).held == 13
    with desk(url) as service:  # the next process goes on
        service.tick()
        service.tick()
        assert stream_of(url).state == "learning" and stream_of(url).held == 0
    assert whole(url)


def test_frozen_streams_neither_mature_nor_assume(url: str) -> None:
    with desk(url, mature=DAY, expire=3 * DAY, expire_as=0) as service:
        service.ask(("paris", "e1", 0.3), ("paris", "e2", 0.6), ("rome", "r1", 0.5))
        service.tell(("paris", "e1", 1))
        service.do("freeze", "paris")
        service.tick(5 * DAY)
        assert stream_of(url).outcomes == 0 and stream_of(url).pending == 1 and stream_of(url, "rome").outcomes == 1
        service.do("resume", "paris")
        service.tick(1.0)
        assert stream_of(url).outcomes == 2 and stream_of(url).expired == 1
    assert whole(url)


@pytest.mark.parametrize("monitor", [None, 1000.0])
def test_passthrough_answers_the_score_and_learns_on(url: str, tmp_path: Path, monitor: float | None) -> None:
    with desk(url, monitor=monitor) as service, desk_beside(tmp_path) as other:
        feed(service, 60)
        assert service.do("passthrough", "paris") == "passthrough"
        assert told(service, "raw") == list(SCORES) and stream_of(url).state == "passthrough"
        feed(service, 40, seed=1)
        assert service.do("freeze", "paris") == "frozen" and stream_of(url).state == "frozen, passthrough"
        assert told(service, "still raw") == list(SCORES)
        assert whole(url)
        service.do("resume", "paris")
        after = told(service, "after")
        assert after != list(SCORES)
        feed(other, 60), feed(other, 40, seed=1)
        assert told(other, "after") == after  # as if nothing had been
        assert service.ask(("paris", "raw-0.1", 0.1)) == [0.1]  # what was told stays told
        feed(service, 30, seed=2)
    assert whole(url)


def test_reset_begins_anew(url: str, tmp_path: Path) -> None:
    with desk(url, monitor=1000.0) as service, desk_beside(tmp_path) as other:
        feed(service, 80, invert=True)
        assert service.do("reset", "paris") == "reset"
        stream = stream_of(url)
        assert (stream.pending, stream.expired, stream.outcomes, stream.alarms) == (0, 3, 77, 0)
        assert service.tell(("paris", "paris-0-79", 1)) == ["expired"]
        feed(service, 50, seed=1), feed(other, 50, seed=1)
        assert told(service, "after") == told(other, "after")
        assert whole(url)
        service.play(40)
    assert whole(url)
    rebuild(url, "ops")
    assert whole(url)
    with desk(url, method=None) as service:
        feed(service, 5, seed=3)
        now = service.now
    assert prune(url, -DAY, now=now) > 0
    assert whole(url)


def test_a_copy_goes_on_from_where_it_was_made(url: str) -> None:
    with desk(url) as service:
        feed(service, 60)
        assert service.do("copy", "paris", to="rome") == "copied"
        assert told(service, "x") == told(service, "y", "rome")
        feed(service, 20, stream="rome", seed=2)
        assert stream_of(url, "rome").events == 83 and stream_of(url).events == 63
        assert service.do("copy", "paris", to="rome") == "copied"  # a retry: nothing is copied again
        assert stream_of(url, "rome").events == 83
        service.now += 601.0
        with pytest.raises(Refusal, match="to must be the name of no stream, got 'rome'") as refused:
            service.do("copy", "paris", to="rome")
        assert refused.value.status == 409
        with pytest.raises(Refusal, match="stream must be one that has events, got 'oslo'"):
            service.do("copy", "oslo", to="bern")
    assert whole(url)


@pytest.mark.parametrize("method", ["tops", "hops"])
def test_a_renamed_stream_stays_what_it_was(url: str, method: str) -> None:
    with desk(url, method=method) as service:
        feed(service, 60)
        assert service.do("rename", "paris", to="lutetia") == "renamed"
        assert service.tell(("lutetia", "paris-0-59", 1)) == ["learnt"]
        assert service.tell(("paris", "paris-0-58", 1)) == ["unknown"]
        feed(service, 20, stream="lutetia", seed=1)
        assert stream_of(url) is None and stream_of(url, "lutetia").events == 80
        feed(service, 10, seed=4)  # another one of the old name
        assert stream_of(url).events == 10
    assert whole(url)
    with desk(url, method=method) as service:
        feed(service, 10, stream="lutetia", seed=5)
    assert whole(url)
    with closing(open_reader(url)) as reader:
        assert [each.name for each in reader.streams(order="events")] == ["lutetia", "paris"]


def test_a_deleted_stream_is_gone(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("calibeat.service.engine.DELETED_AT_ONCE", 10)
    with desk(url, monitor=1000.0) as service:
        feed(service, 30)
        feed(service, 30, stream="rome")
        assert service.do("delete", "paris") == "deleted"
        assert stream_of(url) is None and info(url)["streams"] == 1 and whole(url)
        service.engine.delete_some()
        feed(service, 5, seed=1)  # a new one of that name, before all of the old one is gone
        assert stream_of(url).events == 5 and whole(url)
    with desk(url, monitor=1000.0) as service:  # the next process goes on
        while service.engine.chores.deleting:
            service.engine.delete_some()
    assert whole(url)
    with closing(open_connection(url)) as connection:
        assert connection.all("SELECT count(*) FROM event WHERE id = 'paris-0-3'") == [(0,)]
        assert connection.all("SELECT count(*) FROM stream") == [(2,)]
        assert connection.all("SELECT id FROM op WHERE kind = ?", (ops.DELETE,)) == [("paris",)]


def test_a_process_takes_over_what_another_one_has_left(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stream is known by its number while it is resumed: it may get another name meanwhile."""
    monkeypatch.setattr("calibeat.service.engine.AGED_AT_ONCE", 4)
    with desk(url) as one:
        feed(one, 20)
        one.do("freeze", "paris")
        one.ask(*(("paris", f"f{at}", 0.5) for at in range(10)))
        one.tell(*(("paris", f"f{at}", at % 2) for at in range(10)))
        one.do("resume", "paris")
        assert one.do("rename", "paris", to="rome") == "renamed"
        assert stream_of(url, "rome").held == 10
    with desk(url) as two:
        two.engine.chores.resuming[-1] = None  # of nothing
        two.engine.finish_all()
        assert stream_of(url, "rome").state == "learning" and stream_of(url, "rome").held == 0
    assert whole(url)


def test_an_outcome_of_before_a_reset_is_not_learnt_late(url: str) -> None:
    """Its receipt is of a state that is gone, whether the forecast had expired or its outcome was retracted since."""
    with desk(url, expire=3600.0) as service:
        service.ask(("paris", "expired", 0.3), ("paris", "retracted", 0.6))
        service.tell(("paris", "retracted", 1))
        service.tick(7200.0)
        service.do("reset", "paris")
        service.ask(("paris", "new", 0.4))
        service.correct(("paris", "retracted", None))
        service.engine.corrections.do_all()
        told = service.tell(("paris", "expired", 1), ("paris", "retracted", 0), ("paris", "new", 1))
        assert told == ["expired", "expired", "learnt"]
    assert whole(url)


def test_a_retracted_outcome_of_before_a_reset_stays_unknown_behind_a_new_base(url: str) -> None:
    """Its receipt is kept for replays from the base that forgetting has made; the outcome is not learnt with it."""
    with desk(url) as service:
        service.ask(("paris", "retracted", 0.6), ("paris", "gone", 0.2))
        service.tell(("paris", "gone", 1))
        service.forget("paris", "gone")
        service.tell(("paris", "retracted", 1))
        service.do("reset", "paris")
        service.ask(("paris", "new", 0.4))
        service.correct(("paris", "retracted", None))
        service.engine.corrections.do_all()
        assert service.tell(("paris", "retracted", 0), ("paris", "new", 1)) == ["expired", "learnt"]
        service.correct(("paris", "new", 0))
        service.engine.corrections.do_all()
    assert whole(url)
