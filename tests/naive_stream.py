"""A bucket of a stream one operation at a time, by the words of its documentation: what the columns must agree with."""

from __future__ import annotations

from dataclasses import dataclass
from math import isnan, nan
from typing import Any

from calibeat import Bank

Score = float | tuple[float, ...]  # of many classes: a number for each
Operation = tuple[Any, ...]  # key, id, time, score (NaN: an outcome), outcome, and a weight where outcomes have them
Row = tuple[str, str, int, str, Score, Score, float]  # key, id, time, status, score, forecast, outcome


def is_score(score: Score) -> bool:
    return isinstance(score, tuple) or not isnan(score)


@dataclass
class Event:
    """What is known of an event."""

    time: int  # of its score; while there is none, of its outcome
    state: str
    score: Score = nan
    forecast: Any = None
    outcome: float = nan
    known: int = 0  # the time of its outcome
    weight: float = 1.0

    @property
    def probability(self) -> Score:
        if self.forecast is None:
            return nan
        many = getattr(self.forecast, "probabilities", None)
        return float(self.forecast.probability) if many is None else tuple(many.tolist())


class NaiveBucket:
    """Events by key and id, and a bank."""

    def __init__(self, method: Any, expire: int | None = None, expire_as: int | None = None, mature: int | None = None):
        self.bank = method if isinstance(method, Bank) else Bank(method)
        self.expire, self.expire_as, self.mature = expire, expire_as, mature
        self.events: dict[tuple[str, str], Event] = {}
        self.told: list[Row] = []

    def tell(self, name: tuple[str, str], time: int, status: str, event: Event, **changed: Score) -> None:
        values: dict[str, Any] = {"score": event.score, "forecast": event.probability, "outcome": nan, **changed}
        self.told.append((*name, time, status, values["score"], values["forecast"], values["outcome"]))

    def due(self, event: Event) -> int:
        assert self.mature is not None
        grain = max(1000, self.mature // 64 // 1000 * 1000)
        return -(-(event.time + self.mature) // grain) * grain

    def learn(self, name: tuple[str, str], event: Event, time: int, status: str = "learnt") -> None:
        assert event.forecast is not None
        self.bank.update(name[0], event.forecast, int(event.outcome), weight=event.weight)
        event.state = "settled"
        self.tell(name, time, status, event, outcome=event.outcome)

    def serve(self, operations: list[Operation], now: int) -> list[Row]:
        self.told = []
        for op in sorted(
            operations, key=lambda op: (op[2], is_score(op[3]), op[1], op[3] if is_score(op[3]) else op[4:])
        ):
            key, name, time, score, outcome = op[:5]
            weight = op[5] if len(op) > 5 else 1.0
            event = self.events.get((key, name))
            if is_score(score):
                if event is None or event.state == "early":
                    new = self.events[key, name] = Event(time, "open", score, self.bank.predict(key, score))
                    self.tell((key, name), time, "forecast", new)
                    if event is not None:
                        new.weight = event.weight
                        self.outcome((key, name), new, max(time, event.known), event.known, event.outcome, now)
                else:
                    self.tell((key, name), time, "repeated" if event.score == score else "conflict", event, score=score)
            elif event is None:
                self.events[key, name] = Event(time, "early", outcome=outcome, known=time, weight=weight)
            elif event.state == "open":
                event.weight = weight
                self.outcome((key, name), event, time, time, outcome, now)
            else:
                status = "repeated" if (event.outcome, event.weight) == (outcome, weight) else "conflict"
                self.tell((key, name), time, status, event, outcome=outcome)
        return self.told

    def outcome(self, name: tuple[str, str], event: Event, time: int, known: int, outcome: float, now: int) -> None:
        event.outcome, event.known = outcome, known
        if self.mature is not None and now < self.due(event):
            event.state = "held"
            self.tell(name, time, "held", event, outcome=outcome)
        else:
            self.learn(name, event, time)

    def aged(self, now: int) -> list[Row]:
        self.told = []
        todo: list[tuple[Any, ...]] = []
        for (key, name), event in self.events.items():
            gone = self.expire is not None and event.time + self.expire <= now
            if event.state == "held" and (self.due(event) <= now or gone):
                todo.append((event.time + (self.mature or 0), event.known, name, key, event))
            elif gone and event.state in ("open", "early"):
                known = event.known if event.state == "early" else event.time
                todo.append((event.time + (self.expire or 0), known, name, key, event))
        for *_, name, key, event in sorted(todo, key=lambda row: row[:4]):
            if event.state == "held":
                self.learn((key, name), event, self.due(event))
            elif event.state == "early":
                self.tell((key, name), event.time, "unknown", event, outcome=event.outcome)
            elif self.expire_as is not None:
                event.outcome = float(self.expire_as)
                self.learn((key, name), event, event.time, "expired")
            else:
                self.tell((key, name), event.time, "expired", event)
        if self.expire is not None:
            self.events = {name: e for name, e in self.events.items() if e.time + self.expire > now}
        return self.told
