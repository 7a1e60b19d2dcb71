"""What to do: code that replays the past as the backtest has replayed it, and goes on from there."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from calibeat._util.times import duration_named
from calibeat.backtest.options import Options
from calibeat.backtest.replay.contenders import Contender
from calibeat.core.method import Method, name_of
from calibeat.core.vector import VectorMethod
from calibeat.hosts.groups import Groups


@dataclass(frozen=True)
class HowReplayed:
    """How a log was replayed, as far as whoever replays it again must know."""

    keyed: bool = False
    score_kind: str = "probability"
    missing: bool = False  # whether some events have no outcome
    outcome_times: bool = False  # whether they say when outcomes arrive; else ...
    delay: int | str = 0  # ... outcomes are as late as this,
    delay_microseconds: int = 0  # in time, or
    delay_events: int = 0  # in events
    unsettled: bool = False  # whether a column of outcome times could not be used
    mature: int | str | None = None  # the age at which outcomes are learnt: of forecasts, or a time

    @classmethod
    def of(cls, options: Options, *, keyed: bool, missing: bool, outcome_times: bool, unsettled: bool) -> HowReplayed:
        """From the options, and what the log has shown."""
        age = options.maturity
        mature = None if age is None else duration_named(age.microseconds) if age.microseconds else age.events
        return cls(
            keyed,
            options.score_kind,
            missing,
            outcome_times,
            options.delay,
            options.delay_microseconds,
            options.delay_events,
            unsettled,
            mature,
        )

    def scaled(self, score: str) -> str:
        """A score as a probability."""
        if self.score_kind == "percent":
            return f"{score} / 100"
        return f"0.5 + 0.5 * np.tanh({score} / 2)" if self.score_kind == "logit" else score

    def due(self, outcomes: str) -> list[str]:
        """Lines that say when each outcome is learnt; none where all are known at once, or as their times say."""
        lines = []
        if self.outcome_times:  # `run` takes the times themselves
            is_known = "y is not None" if outcomes == "past_labels" else "y == y"
            pairs = f"zip(past_outcome_times, {outcomes})"
            return [f"known = [\n    t if {is_known} else None for t, y in {pairs}\n]"] if self.missing else []
        if self.delay_microseconds:
            lines.append(f"late = np.timedelta64({self.delay_microseconds}, 'us')  # {self.delay}")
            lines.append("due = np.searchsorted(past_times, past_times + late)")
            lines.append("due = np.maximum(due, np.arange(1, len(due) + 1))  # not before its own event")
        elif self.delay_events or self.missing:
            late = f"{self.delay_events:,} events late" if self.delay_events else "at once"
            lines.append(f"due = np.arange(len(past_scores)) + {1 + self.delay_events}  # {late}")
        if lines and self.missing:
            none = "np.isnan(past_outcomes)" if outcomes == "past_outcomes" else f"[y is None for y in {outcomes}]"
            lines.append(f"due[{none}] = len(due)  # it never came")
        return lines

    def run(self, host: str, outcomes: str, *more: str, age: str = "", keyed: bool = False, scale: bool = True) -> str:
        """Lines that replay the past."""
        lines = self.due(outcomes)
        scores = self.scaled("past_scores") if scale else "past_scores"
        arguments = [*(["past_keys"] if keyed else []), scores, outcomes]
        if self.outcome_times:
            arguments.append(f"outcome_times={'known' if lines else 'past_outcome_times'}")
        elif lines:
            arguments.append("due=due")
        arguments += more
        mature = age or self.mature
        if mature is not None:
            arguments.append(f"mature={mature!r}")
        if isinstance(mature, str) or self.outcome_times:
            arguments.append("times=past_times")
        call = f"forecasts = {host}.run({', '.join(arguments)})"
        if len(call) > LONGEST_LINE:
            inner = "".join(f"\n    {argument}," for argument in arguments)
            call = f"forecasts = {host}.run({inner}\n)"
        about = [GROUPS] if "groups=past_groups" in more else []
        return "\n".join([*about, *lines, call])


LONGEST_LINE = 88
GROUPS = "# past_groups: a data frame or a dict of columns; groups, below: a dict of values"

CODE = """\
{imports}

{host} = {kind}({made})
# Once, with the past{outcomes}, as here:
{run}

forecast = {host}.predict({given})  # {act}
{host}.update({known})  # {when}
"""

CODE_KEEP = """\
from calibeat import Monitor

monitor = Monitor()           # keep the score, and be told when it breaks
number = monitor.announce()   # with each score, and when its outcome is known:
alarms = monitor.update(number, score, outcome)
"""

CODE_WATCH = """\
from calibeat import Monitor

monitor = Monitor()           # be told when its forecasts break
number = monitor.announce()   # with each forecast, and when its outcome is known:
alarms = monitor.update(number, forecast, outcome)
"""

NO_POOL = "The service starts each stream by itself; a pooled start is for Python."

CODE_SERVICE = """\
pip install 'calibeat[service]'
calibeat serve --store calibeat.db --method {name}
"""


def deployment(contender: Contender, past: HowReplayed, *, is_raw: bool = False) -> tuple[str, str | None, str]:
    """The code that puts a method to work: in Python, as a service (None if it cannot be), and a remark."""
    if is_raw:
        return CODE_KEEP, None, "Nothing to deploy: go on with the raw score."
    method, notes = contender.method or contender.base, list[str]()
    if contender.method is None:
        notes.append(contender.about)
        if method is None:
            return CODE_WATCH, None, f"{contender.about} It is not calibeat's: go on with it as you do, and watch it."
    age = contender.age or ("" if past.mature is None else str(past.mature))
    if age:
        notes.append(f"In Python, hold each outcome back until it is {_old(age)}, ones and zeros alike.")
    name = name_of(method) if isinstance(method, Method) else None
    library = _library(contender, past, repr(name) if name else repr(method), named=name is not None)
    if contender.groups is not None:
        notes.append("As a service, send the attributes with each score, as groups.")
    if name is None or contender.pooled:
        notes.append("The service takes presets by name; this method has none." if name is None else NO_POOL)
        return library, None, " ".join(notes)
    service = CODE_SERVICE.format(name=name + (f" --mature {age}" if age else ""))
    return library, service, " ".join(notes)


def _old(age: str) -> str:
    return f"{age} forecasts old" if age.isdigit() else f"{age} old"


def _library(contender: Contender, past: HowReplayed, made: str, *, named: bool) -> str:
    """The code in Python."""
    keyed = past.keyed and not contender.one_stream
    used = re.findall(r"\b[A-Z]\w*(?=\()", "" if named else made)  # the parts, by their classes
    more: list[str] = []
    score = past.scaled("score")
    if contender.pooled:
        made += ', prior="pooled"'
    if contender.groups is not None:
        made += f", groups={_groups(contender.groups)}"
        used += re.findall(r"Groups(?=\()", made)
        more, score = ["groups=past_groups"], f"{score}, groups=groups"
    names = {"Bank" if keyed else "Calibrator", *used}
    return _code(past, names, made, "past_outcomes", score, *more, age=contender.age, keyed=keyed)


def _groups(groups: Groups) -> str:
    """As a person writes them: the names, unless there is more to say."""
    names, usual = list(groups.attributes), Groups(groups.attributes)
    if groups.crossings == usual.crossings and groups.cells == usual.cells:
        return repr(names)
    return f"Groups({names}, crossings={list(groups.crossings)}, cells={groups.cells})"


def _code(
    past: HowReplayed, names: set[str], made: str, outcomes: str, given: str, *more: str, age: str = "", keyed: bool
) -> str:
    """Lines that replay the past and go on; `names` are what they import, the host among them."""
    host, key = ("bank", "key, ") if keyed else ("cal", "")
    many = outcomes == "past_labels"
    run = past.run(host, outcomes, *more, age=age, keyed=keyed, scale=not (many and past.score_kind == "logit"))
    asked = age or ("" if past.mature is None else str(past.mature))
    act = f"act on forecast.{'probabilities' if many else 'probability'}"
    return CODE.format(
        imports=_imports(names, run + given),
        host=host,
        kind=next(name for name in names if name.endswith("Bank" if keyed else "Calibrator")),
        made=made,
        run=run,
        outcomes="" if many else " (outcomes 0, 1, NaN where missing)" if past.missing else " (outcomes 0 and 1)",
        given=key + given,
        act=f"a new key too; {act}" if keyed else act,
        known=f"{key}forecast, {'label' if many else 'outcome'}",
        when=f"when it is known and {_old(asked)}" if asked else "when it is known, in any order",
    )


def _imports(names: set[str], code: str) -> str:
    """What the code needs."""
    ours = f"from calibeat import {', '.join(sorted(names))}"
    return f"import numpy as np\n{ours}" if "np." in code else ours


# ---- many classes ------------------------------------------------------------------------------------------------

CODE_KEEP_CLASSES = """\
from calibeat import MultiCalibrator

cal = MultiCalibrator({made})   # beside the raw scores
forecast = cal.predict(scores)
cal.update(forecast, label)
cal.evidence                               # above 3: they deserve less trust by now (e-value of 20)
"""

CODE_FITTED = """\
import numpy as np

forecast = np.exp(np.log(scores) / T)   # T has the least log-loss on {which}
forecast /= forecast.sum()
"""
FITTED_ON = {"fts": "the first 1,000 labels", "swts": "the last 2,000 labels, fitted again every 500"}


def deployment_of_classes(contender: Contender, classes: Sequence[str], past: HowReplayed) -> tuple[str, str]:
    """The same for many classes: in Python, and a remark."""
    numbered = list(classes) == [str(k) for k in range(len(classes))]
    made = str(len(classes)) if numbered or len(classes) > 10 else repr(list(classes))
    logits = past.score_kind == "logit"
    end = ", logits=True" if logits else ""
    if contender.name == "raw":
        return CODE_KEEP_CLASSES.format(made=made + end), "Nothing to deploy: go on with the raw scores."
    if contender.refits is not None:
        note = "A temperature that is fitted now and then is no class of calibeat."
        return CODE_FITTED.format(which=FITTED_ON[contender.name]), note
    method, keyed = contender.method or contender.base, past.keyed and not contender.one_stream
    named = f", method={method.name!r}" if isinstance(method, VectorMethod) and method.name != "multi" else ""
    prior = ', prior="pooled"' if contender.pooled else ""
    given = "scores" if logits else past.scaled("scores")
    names = {"MultiBank" if keyed else "MultiCalibrator"}
    code = _code(past, names, made + named + end + prior, "past_labels", given, keyed=keyed)
    return code, contender.about if contender.method is None else ""
