"""What a manager reads first: one number of events, one line on how sure, and what to do."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from calibeat.backtest.replay.contenders import Contender
from calibeat.backtest.replay.engine import Replayed
from calibeat.backtest.replay.tally import COUNT, FORECAST, OUTCOME
from calibeat.core.presets import name_of
from calibeat.report.schema import Answer, Happened, Verdict

from .measures import CountedMethod

SHARE, LEAST = 0.01, 50  # of the judged events, and so many at least: a bin with fewer is nobody's example

SURE = {
    ("use", "sure"): "We are sure: the gain is beyond luck on this log (95 %), and it is there in resampled stretches "
    "of the log too.",
    ("use", "likely"): "It is likely, not certain: the gain is beyond luck on this log (95 %), but it changes along "
    "the log, so how large it will be elsewhere is open.",
    ("use", "unclear"): "It is not settled: check the column of scores first.",
    ("keep", "sure"): "We are sure: on this log every method loses to the raw score, beyond luck (95 %).",
    ("keep", "likely"): "It is likely: no method shows a gain that would pay for another part in production.",
    ("keep", "unclear"): "It is not settled: this log is too short or too uneven to tell. A longer log may.",
}


def answer(replayed: Replayed, found: Verdict) -> Answer:
    """From the verdict and the bins of the raw score and of the chosen method."""
    runners = {runner.name: runner for runner in replayed.runners}
    raw, chosen = replayed.runners[0], runners[found["method"]]
    pair = [raw] if chosen is raw else [raw, chosen]
    library, service, note = deployment(chosen.contender, keyed=replayed.keyed, is_raw=chosen is raw)
    return {
        "happened": example_of(pair, replayed.blocks.used, replayed.blocks.judged),
        "sure": SURE["keep" if chosen is raw else "use", found["confidence"]],
        "library": library.splitlines(),
        "service": None if service is None else service.splitlines(),
        "note": note,
    }


def example_of(runners: Sequence[CountedMethod], used: int, judged: int) -> list[Happened]:
    """The bin in which the raw score is off by the most events, if each method has enough there; else all events.

    Letters: n events in a bin, p the sum of their forecasts, y of their outcomes; the bin has the largest |y - p|.
    """
    tables = [runner.tally.cells(used)[1:].sum(axis=0) for runner in runners]
    enough = np.min([table[:, COUNT] for table in tables], axis=0) >= max(LEAST, SHARE * judged)
    if enough.any():
        off = np.abs(tables[0][:, OUTCOME] - tables[0][:, FORECAST])
        tables = [table[[int(np.argmax(np.where(enough, off, -1.0)))]] for table in tables]
    return [_happened(runner.name, table) for runner, table in zip(runners, tables, strict=True)]


def _happened(name: str, table: Any) -> Happened:
    n, p, y = table.sum(axis=0).tolist()
    return {"method": name, "count": int(n), "forecast": p / n, "outcome": y / n}


# ---- do this ---------------------------------------------------------------------------------------------------------

ONE = """\
from calibeat import {names}

cal = Calibrator({method})
cal.run(past_scores, past_outcomes)  # once, with what is known already

forecast = cal.predict(score)        # act on forecast.probability
cal.update(forecast, outcome)        # when it is known, in any order
"""

MANY = """\
from calibeat import {names}

bank = Bank({method})
bank.run(past_keys, past_scores, past_outcomes)  # once

forecast = bank[key].predict(score)  # act on forecast.probability
bank[key].update(forecast, outcome)  # when it is known, in any order
"""

KEEP = """\
from calibeat import Monitor

monitor = Monitor()           # keep the score, and be told when it breaks
number = monitor.announce()   # with each score, and when its outcome is known:
alarms = monitor.update(number, score, outcome)
"""

WATCH = """\
from calibeat import Monitor

monitor = Monitor()           # be told when its forecasts break
number = monitor.announce()   # with each forecast, and when its outcome is known:
alarms = monitor.update(number, forecast, outcome)
"""

NO_POOL = "The service starts each stream by itself; a pooled start is for Python."

SERVICE = """\
pip install 'calibeat[service]'
calibeat serve --store calibeat.db --method {name}
"""


def deployment(contender: Contender, *, keyed: bool, is_raw: bool = False) -> tuple[str, str | None, str]:
    """The code that puts a method to work: in Python, as a service (None if it cannot be), and a remark."""
    if is_raw:
        return KEEP, None, "Nothing to deploy: go on with the raw score."
    method, notes, prior = contender.method, list[str](), ""
    if method is None:
        notes.append(contender.about)
        if contender.base is None:
            return WATCH, None, f"{contender.about} It is not calibeat's: go on with it as you do, and watch it."
        prior = ', prior="pooled"' if contender.pooled else ""
        keyed = keyed and not contender.one_stream
        method = contender.base
    if contender.age:
        notes.append(f"In Python, hold each outcome back until it is {contender.age} old, ones and zeros alike.")
    name = name_of(method)
    code = repr(name) if name else repr(method)
    used = re.findall(r"\b[A-Z]\w*(?=\()", "" if name else code)  # the parts, by their classes
    names = ", ".join(sorted({"Bank" if keyed else "Calibrator", *used}))
    library = (MANY if keyed else ONE).format(names=names, method=code + prior)
    if name is None or prior:
        notes.append("The service takes presets by name; this method has none." if name is None else NO_POOL)
        return library, None, " ".join(notes)
    return library, SERVICE.format(name=name + (f" --mature {contender.age}" if contender.age else "")), " ".join(notes)
