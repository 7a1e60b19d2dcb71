"""Random histories of a store, in which the engine is restarted and killed: nothing that was answered changes.

The outside keeps what clients know: each answer, and the outcome that was taken last. In the end the log is replayed,
and a plain calibrator of the library gets the same forecasts and the right outcomes.
"""

from __future__ import annotations

import os
import random
from contextlib import suppress
from dataclasses import dataclass, field
from math import isclose
from operator import itemgetter
from pathlib import Path
from typing import Any

import pytest
from crashes import die_in, drop
from kills import calibrator_of, fields_of, result_of
from msgspec import UNSET
from msgspec.structs import replace
from services import DAY, Desk, whole

from calibeat import Calibrator
from calibeat.core.method import method_named
from calibeat.core.stats import log_loss
from calibeat.service.engine import Engine
from calibeat.service.events import (
    Control,
    CorrectionEvent,
    ForecastEvent,
    NumberGroup,
    OutcomeEvent,
    Refusal,
    StreamSettings,
)
from calibeat.service.settings import EngineSettings, model_of, settle_meta
from calibeat.service.store import open_store
from calibeat.service.store.types import EXPIRED

STEPS = 250
NAMES = ["a", "b", "c", "ka", "kb", "ga", "gb", "ma", "na"]  # of these shapes:
MODELS = ["champion", "challenger"]
SHAPES = {
    "m": StreamSettings(models=MODELS),
    "n": StreamSettings(groups=[NumberGroup("size", first=5), "land"], names=True, cells=16),
}
SETTINGS: dict[str, dict[str, Any]] = {
    "auto, watched, mature, expires": {"method": "auto", "monitor": 50.0, "mature": 3600.0, "expire": 2 * DAY},
    "auto": {"method": "auto"},
    "tops, watched": {"method": "tops", "monitor": 50.0},
    "hops, expires": {"method": "hops", "expire": DAY, "seed": 3},
    "auto, assumes": {"method": "auto", "expire": DAY, "expire_as": 0, "monitor": 50.0},
}
DONE = {"freeze": "frozen", "resume": "resumed", "passthrough": "passthrough", "reset": "reset", "forget": "forgetting"}
DONE |= {"copy": "copied", "rename": "renamed", "delete": "deleted"}


def fields(kind: str, score: float) -> dict[str, Any]:
    """What a forecast is asked with; all of it follows from one number."""
    if kind.startswith("m"):
        return {"scores": {"champion": score, "challenger": None if score < 0.2 else 1.0 - score * score}}
    if kind.startswith("n"):
        return {"score": score, "groups": {"size": 100.0 * score, "land": f"l{int(score * 1000) % 40}"}}
    return fields_of(kind, score)


@dataclass
class Seen:
    """An event, as its clients know it."""

    score: float
    told: Any
    right: Any = None  # the outcome that was taken last: number, weight, trials
    is_free: bool = True  # no outcome was sent yet


@dataclass
class Stream:
    """A stream, as its clients know it."""

    key: str  # its first name
    events: dict[str, Seen] = field(default_factory=dict)
    is_plain: bool = True  # its log alone gives its state: nothing was copied, reset or forgotten
    is_even: bool = True  # its forecasts are those of a calibrator all along: nothing was corrected or passed through
    may_lose: bool = False  # outcomes that wait may have been given up

    def drop(self) -> None:
        """What waits may be given up."""
        self.may_lose = True


def right_of(event: Any) -> Any:
    """What an outcome says, as the store has it."""
    if event.ones is not UNSET:
        outcome, of = event.ones, event.of
    else:
        outcome, of = event.outcome if event.label is UNSET else event.label, None
    return None if outcome is None else (outcome, None if event.weight is UNSET else event.weight, of)


class World:
    """An engine, everything that its clients know, and a source of chance."""

    def __init__(self, path: Path, seed: int, settings: dict[str, Any]) -> None:
        self.path, self.settings, self.dice = str(path), settings, random.Random(seed)  # noqa: S311 - a test
        is_auto = settings["method"] == "auto"
        self._has_weights = is_auto and "monitor" not in settings  # which cannot judge them
        self.streams = {name: Stream(name) for name in NAMES if is_auto or name[0] not in "gmn"}
        self.desk = Desk(self.path, **settings)
        for name in self.streams:
            if name[0] in SHAPES:
                (made,) = self.desk.group([replace(SHAPES[name[0]], stream=name)])
                assert not isinstance(made, Refusal), made
        self.ids = self.crashes = self.corrections = self.verbs = 0
        self.answers: list[str] = []
        self._prepare()

    def _prepare(self) -> None:
        self.desk.engine.behind.may_wait = self.dice.random() < 0.8

    # ---- the engine ends, and another one goes on -------------------------------------------------------------------

    def _recover_in_part(self, now: float) -> None:
        store = open_store(self.path)
        settings = settle_meta(store, EngineSettings(**self.settings))
        engine = Engine(store, settings, model_of(settings), lambda: now)
        die_in(engine, self._moment())
        with suppress(Exception):
            engine.recover()
        drop(engine)
        self.crashes += 1

    def _moment(self) -> int:
        """A number of steps of SQLite: a commit takes a few, to write many tables takes thousands."""
        return int(10 ** self.dice.uniform(0.0, 4.5))

    def do(self, work: Any) -> Any:
        """Do something, perhaps with a crash in the middle; then it is done once more, as clients do."""
        while self.dice.random() < 0.1:
            die_in(self.desk.engine, self._moment())
            with suppress(Exception):
                work()
            drop(self.desk.engine)
            self.crashes += 1
            self._revive()
        return work()

    def _revive(self) -> None:
        now = self.desk.now
        while self.dice.random() < 0.3:
            self._recover_in_part(now)
        self.desk = Desk(self.path, clock=lambda: self.desk.now, **self.settings)
        self.desk.now = now
        self._prepare()

    # ---- what clients do --------------------------------------------------------------------------------------------

    def step(self) -> None:
        """Something happens."""
        dice, kind = self.dice, self.dice.random()
        if kind < 0.7:
            self.requests()
        elif kind < 0.79:
            self.verb()
        elif kind < 0.83:
            self.forget()
        elif kind < 0.90:
            self.desk.now += dice.choice((1.0, 60.0, 3600.0, 3600.0, 30_000.0, 1.1 * DAY))
            self.do(lambda: self.desk.engine.process([]))
        elif kind < 0.94:
            self.do(lambda: self.desk.engine.finish_all())  # noqa: PLW0108 - the engine may be another by then
        elif kind < 0.97:
            self.do(lambda: self.desk.engine.write_out())  # noqa: PLW0108 - as before
        else:
            self._end()

    def _end(self) -> None:
        if self.dice.random() < 0.4:
            self.desk.engine.write_out()
            self.desk.close()
        else:
            drop(self.desk.engine)
        self._revive()

    def requests(self) -> None:
        """Some requests of one group: each sees what the one before it did."""
        dice = self.dice
        made: list[list[Any]] = []
        for _ in range(dice.randint(1, 4)):
            kind = dice.random()
            if kind < 0.5:
                made.append(list({event.id: event for event in self._forecasts()}.values()))
            else:
                make = OutcomeEvent if kind < 0.85 else CorrectionEvent
                made.append(list({event.id: event for event in self._outcomes(make, made)}.values()))
        made = [events for events in made if events]
        answers = self.do(lambda: self.desk.group(*made)) if made else []
        for events, answer in zip(made, answers, strict=True):
            assert not isinstance(answer, Refusal), answer
            for event, said in zip(events, answer, strict=True):
                self._hear(event, said)

    def _forecasts(self) -> list[ForecastEvent]:
        dice, made = self.dice, []
        for _ in range(dice.randint(1, 8)):
            name = dice.choice(list(self.streams))
            known = self.streams[name].events
            if known and dice.random() < 0.15:
                again = dice.choice(list(known))
                made.append(ForecastEvent(name, again, **fields(self._kind(name), known[again].score)))
            else:
                self.ids += 1
                time = self.desk.now - dice.choice((0.0, 0.0, 1800.0, 7200.0))
                asked = fields(self._kind(name), dice.random())
                made.append(ForecastEvent(name, f"e{self.ids}", time=time, **asked))
        return made

    def _kind(self, name: str) -> str:
        """The first name of a stream, which tells its shape."""
        return self.streams[name].key

    def _outcomes(self, make: Any, earlier: list[list[Any]]) -> list[Any]:
        dice, made = self.dice, []
        pool = [(name, each) for name, stream in self.streams.items() for each in stream.events]
        free = [(name, each) for name, each in pool if self.streams[name].events[each].is_free]
        free += [(event.stream, event.id) for events in earlier for event in events if type(event) is ForecastEvent]
        for _ in range(dice.randint(1, 8)):
            found = free if free and make is OutcomeEvent and dice.random() < 0.8 else pool
            if found:
                name, each = dice.choice(found)
                outcome = dice.choice((0, 1, None) if make is CorrectionEvent else (0, 1))
                time = None if dice.random() < 0.7 else self.desk.now - 100.0
                more = {"weight": dice.choice((0.5, 2.0, 20.0))} if outcome is not None and dice.random() < 0.2 else {}
                if not self._has_weights or self._kind(name)[0] == "m":
                    more = {}
                elif outcome is not None and self._kind(name)[0] != "k" and dice.random() < 0.15:
                    made.append(make(name, each, time=time, ones=dice.randint(0, 5), of=5, **more))
                    continue
                made.append(make(name, each, time=time, **result_of(self._kind(name), outcome), **more))
        return made

    def _hear(self, event: Any, said: Any) -> None:
        stream = self.streams[event.stream]
        if type(event) is ForecastEvent:
            score = event.score
            if event.scores is not UNSET:
                score = event.scores["champion"] if isinstance(event.scores, dict) else 2 * event.scores[0]
            before = stream.events.setdefault(event.id, Seen(score, said))
            assert before.told == said, f"{event.id} got {before.told} and then {said}"
            return
        self.answers.append(said)
        assert said in {"learnt", "held", "repeated", "conflict", "corrected", "expired", "final"}, (event, said)
        seen = stream.events[event.id]
        seen.is_free = False
        if said in {"learnt", "held", "corrected", "repeated"}:  # after a crash the answer to it was lost
            seen.right = right_of(event)
        if type(event) is CorrectionEvent and said == "corrected":
            stream.is_even = False
            self.corrections += 1

    def verb(self) -> None:
        """Something is done to a stream."""
        dice = self.dice
        name = dice.choice(list(self.streams))
        stream = self.streams[name]
        verb = dice.choice(("freeze", "freeze", "resume", "resume", "resume", "passthrough", "reset", "rename", "copy"))
        if not stream.events or (verb == "passthrough" and stream.key[0] == "m"):
            return
        if verb in {"rename", "copy"} and (len(name) > 8 or len(self.streams) > 9):
            return
        outcomes = dice.choice(("learn", "learn", "drop"))
        self.ids += 1
        to = f"{name[0]}{self.ids}" if verb in {"rename", "copy"} else ""
        self.desk.now += 1.0  # otherwise it might be a retry
        answers = self.do(lambda: self.desk.group([Control(verb, name, to=to, outcomes=outcomes)]))
        (answer,) = answers
        if isinstance(answer, Refusal):
            assert verb == "copy" and "corrections that wait" in answer.message, answer
            return
        assert answer == [DONE[verb]]
        self.verbs += 1
        if verb == "reset":
            stream.is_plain, stream.may_lose = False, True
        elif verb == "resume" and outcomes == "drop":
            stream.may_lose = True
        elif verb == "passthrough":
            stream.is_even = False
        elif verb == "rename":
            self.streams[to] = self.streams.pop(name)
        elif verb == "copy":
            self.streams[to] = Stream(stream.key, is_plain=False)
            if dice.random() < 0.5:
                self._delete(to)

    def _delete(self, name: str) -> None:
        (answer,) = self.do(lambda: self.desk.group([Control("delete", name)]))
        assert answer == ["deleted"]
        del self.streams[name]

    def forget(self) -> None:
        """Events are forgotten, now or soon. Nobody speaks of them again."""
        dice = self.dice
        name = dice.choice(list(self.streams))
        stream = self.streams[name]
        if not stream.events:
            return
        ids = tuple(dice.sample(list(stream.events), k=min(len(stream.events), dice.randint(1, 3))))
        try:
            self.do(lambda: self.desk.engine.process([(None, [Control("forget", name, ids=ids)])]))
        finally:
            for each in ids:
                del stream.events[each]
            stream.is_plain = stream.is_even = False
        if dice.random() < 0.5:
            self.do(lambda: self.desk.engine.finish_all())  # noqa: PLW0108 - the engine may be another by then

    # ---- the verdict ------------------------------------------------------------------------------------------------

    def check(self) -> None:
        """The store is what its clients know."""
        engine = self.desk.engine
        engine.finish_all()
        engine.write_out()
        assert whole(self.path)
        for name, stream in self.streams.items():
            if not stream.events:
                continue
            kind = self._kind(name)
            ids = list(stream.events)
            asked = [ForecastEvent(name, each, **fields(kind, stream.events[each].score)) for each in ids]
            (told,) = self.desk.group(asked)
            assert told == [stream.events[each].told for each in ids]
            rows = engine.store.connection.all(
                "SELECT e.id, e.status, e.outcome, e.position, e.learnt, o.x, o.told, e.weight, e.trials FROM event e "
                "JOIN op o ON o.position = e.position JOIN stream s ON s.number = e.stream WHERE s.name = ?",
                (name,),
            )
            assert sorted(row[0] for row in rows) == sorted(ids)
            wrong = [
                (row, stream.events[row[0]])
                for row in rows
                if (None if row[2] is None else (row[2], *row[7:])) != stream.events[row[0]].right
                and not (row[1] == EXPIRED and row[2] is None and stream.may_lose)
                and not (row[1] == 4 and stream.events[row[0]].right is None)
            ]
            assert not wrong, (name, wrong)
            if kind[0] in "abcgn" and stream.is_plain:
                self._check_sums(name, rows)
            if stream.is_plain:
                self._check_state(name, stream, rows)

    def _check_sums(self, name: str, rows: list[Any]) -> None:
        learnt = [row for row in rows if row[4] is not None]
        ((raw, cost),) = self.desk.engine.store.connection.all(
            "SELECT raw_log_loss, log_loss FROM stream WHERE name = ?", (name,)
        )
        for total, at in ((raw, 5), (cost, 6)):
            expected = 0.0
            for row in learnt:
                weight, of = row[7] or 1.0, row[8] or 1
                ones = row[2] / of
                expected += weight * of * (ones * log_loss(row[at], 1.0) + (1.0 - ones) * log_loss(row[at], 0.0))
            assert isclose(total, expected, rel_tol=1e-9, abs_tol=1e-9), (name, total, expected)

    def _check_state(self, name: str, stream: Stream, rows: list[Any]) -> None:
        """A plain calibrator forecasts the same, bit for bit, from what is right."""
        engine, kind = self.desk.engine, self._kind(name)
        found = engine.store.connection.all(
            "SELECT mode, text FROM stream LEFT JOIN shape ON shape.stream = number WHERE name = ?", (name,)
        )
        ((mode, text),) = found
        settings = engine.settings
        method = method_named(settings.method)
        if kind.startswith("m"):
            plain: Any = Calibrator(method, settings.seed, kind, models=MODELS)
        else:
            plain = calibrator_of(kind, text, method, settings.seed)
        todo = [(row[3], row[0], None) for row in rows]
        todo += [(row[4], row[0], (row[2], *row[7:])) for row in rows if row[4] is not None]
        made: dict[str, Any] = {}
        for _, each, known in sorted(todo, key=itemgetter(0)):
            if known is not None:
                outcome, weight, of = known
                if outcome is None:  # retracted
                    continue
                plain.update(made[each], outcome, weight, of)
                continue
            made[each], answer = self._predict(plain, kind, stream.events[each].score)
            assert not stream.is_even or answer == stream.events[each].told, (name, each)
        if mode & 2:
            return
        self.ids += 1
        event = f"probe{self.ids}"
        _, wanted = self._predict(plain, kind, 0.37)
        ((told,),) = self.desk.group([ForecastEvent(name, event, **fields(kind, 0.37))])
        stream.events[event] = Seen(0.37, told)
        assert told == wanted, name

    @staticmethod
    def _predict(plain: Any, kind: str, score: float) -> tuple[Any, Any]:
        asked = fields(kind, score)
        if kind.startswith("k"):
            made = plain.predict(asked["scores"])
            return made, made.probabilities.tolist()
        groups = [asked["groups"]] if "groups" in asked else []
        made = plain.predict(asked["scores"] if kind.startswith("m") else score, *groups)
        return made, made.probability


@pytest.mark.parametrize("seed", range(int(os.environ.get("CALIBEAT_HISTORIES", "3"))))
@pytest.mark.parametrize("case", SETTINGS)
def test_a_history_of_requests_restarts_and_kills(tmp_path: Path, case: str, seed: int) -> None:
    world = World(tmp_path / "calibeat.db", seed, SETTINGS[case])
    for step in range(STEPS):
        world.step()
        if step % 100 == 99:
            world.check()
    world.check()
    world.desk.engine.write_out()
    world.desk.close()
    assert whole(world.path)
    assert world.crashes > 5 and world.corrections > 5 and world.verbs > 5
    assert {"learnt", "repeated", "conflict", "corrected"} <= set(world.answers)
