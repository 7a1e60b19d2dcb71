"""How late outcomes were, which of them could be learnt, and whether ones and zeros come at different ages."""

from __future__ import annotations

from calibeat._util.words import duration
from calibeat.backtest.replay.engine import Replayed, Runner
from calibeat.backtest.replay.late import Ages, Delays
from calibeat.report.schema import AgesByOutcome, DelayInfo, Immediate, Number

from .measures import number, overall


def notice_of_ages(replayed: Replayed, ages: Ages, labels: dict[str, str]) -> str | None:
    """The sentences of the verdict on ones and zeros of clearly different ages; None where they are not.

    `labels` are the names of the methods. With a maturity that is old enough there is nothing to say.
    """
    if not ages.differ:
        return None
    maturity, typed = ages.maturity
    if replayed.maturity is not None and replayed.maturity.microseconds >= maturity.microseconds:
        return None
    sooner = "zeros" if ages.share_later > 0.5 else "ones"
    sentences = f"{_medians(ages)} A method that learns each outcome as it comes sees too many {sooner} at first."
    tried = _held_back(replayed)
    if tried is None:
        return f"{sentences} Replay the log with one age for both: --mature {typed} (mature={typed!r} in Python)."
    return f"{sentences} {labels[tried[0].name]} learns both at the same age. {_worth(tried)}"


def _held_back(replayed: Replayed) -> tuple[Runner, str, float, float] | None:
    """The run that learns ones and zeros at one age; its method's name, and the log-loss held back and as they come."""
    held = next((runner for runner in replayed.runners if runner.contender.age), None)
    if held is None:
        return None
    name = held.name.removesuffix(f", mature {held.contender.age}")
    as_they_come = next(runner for runner in replayed.runners if runner.name == name)
    used, tallies = replayed.blocks.used, (held.tally, as_they_come.tally)
    mine, theirs = (overall(tally.cells(used)[1:], tally.sums(used)[1:])["log_loss"] for tally in tallies)
    return held, as_they_come.contender.label, mine, theirs


def _worth(tried: tuple[Runner, str, float, float]) -> str:
    """Whether it paid to hold outcomes back, and what to do if the method is deployed: the verdict may differ."""
    held, label, mine, theirs = tried
    age, losses = held.contender.age, f"(log-loss {mine:.4f}, as they come {theirs:.4f})"
    if mine >= theirs:
        return f"On this log that is no better {losses}. If you deploy {label}, learn outcomes as they come."
    return (
        f"On this log that is better {losses}. If you deploy {label}, hold each outcome back until it is {age} old "
        f"(--mature {age}), and act on the raw score until the first is."
    )


def _medians(ages: Ages) -> str:
    ones, zeros = (_seconds(sizes.quantiles()["50%"]) for sizes in (ages.ones, ages.zeros))
    return (
        f"Ones and zeros come at clearly different ages: half of the ones are known after {duration(ones)}, half of "
        f"the zeros after {duration(zeros)}."
    )


def _ages(replayed: Replayed) -> AgesByOutcome | None:
    ages, tried = replayed.ages, _held_back(replayed)
    if ages is None or not ages.ones.total or not ages.zeros.total:
        return None
    return {
        "ones": {name: _seconds(value) for name, value in ages.ones.quantiles().items()},
        "zeros": {name: _seconds(value) for name, value in ages.zeros.quantiles().items()},
        "ones_later": number(ages.share_later),
        "differ": ages.differ,
        "mature": ages.maturity[1] if tried is None else tried[0].contender.age,
        "sentence": _medians(ages) if ages.differ else "",
        "advice": "" if tried is None or not ages.differ else _worth(tried),
    }


def _seconds(microseconds: Number) -> Number:
    return None if microseconds is None else microseconds * 1e-6


def delay(replayed: Replayed, delays: Delays) -> DelayInfo:
    """How late outcomes were, and what the wait cost."""
    used = replayed.blocks.used
    sizes, scale = (delays.time, 1e-6) if delays.timed else (delays.events, 1.0)
    quantiles = {name: None if value is None else value * scale for name, value in sizes.quantiles().items()}
    later = delays.events.quantiles()
    edges, counts = sizes.histogram()
    at_once: dict[str, Immediate] = {}
    for runner in replayed.runners:
        if runner.at_once is not None:
            tally = runner.at_once[1]
            measured = overall(tally.cells(used)[1:], tally.sums(used)[1:])
            at_once[runner.name] = {"log_loss": number(measured["log_loss"]), "ce": number(measured["ce"])}
    return {
        "unit": "time" if delays.timed else "events",
        "quantiles": quantiles,
        "events_quantiles": later,
        "never": replayed.never,
        "too_late": replayed.too_late,
        "histogram": {"edges": [edge * scale for edge in edges], "count": counts},
        "sentence": _sentence(replayed, delays, later["50%"]),
        "immediate": at_once or None,
        "ages": _ages(replayed),
    }


def _sentence(replayed: Replayed, delays: Delays, median: Number) -> str:
    """How late outcomes were, and which of them the numbers are about."""
    sentences = ["Each outcome was learnt when it had arrived, as in production."]
    if replayed.maturity is not None:
        sentences = ["Each outcome was learnt when it had arrived and was old enough."]
    if median is None:
        sentences.append("No outcome arrived before the last forecast: nothing was learnt.")
    else:
        forecasts = "no forecast" if median == 0 else "one forecast" if median == 1 else f"{median:,.0f} forecasts"
        fewer = "" if median == 0 else " or fewer"
        sentences.append(
            f"Of the {delays.learnt:,} that arrived before the last forecast, half did so with {forecasts}{fewer} made "
            "meanwhile."
        )
    if replayed.too_late:
        known = (
            "times of arrival count them, forecasts made meanwhile do not" if delays.timed else "they are not counted"
        )
        sentences.append(f"{replayed.too_late:,} arrived after the last forecast, too late to be learnt; {known}.")
    if replayed.never:
        sentences.append(f"{replayed.never:,} have not arrived at all.")
    return " ".join(sentences)
