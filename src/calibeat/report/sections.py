"""The parts of the page that are text and tables; pictures get their place here and are drawn by static/*.js."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from xml.etree.ElementTree import Element

from calibeat._util.words import NOTHING, count, percent, significant

from . import classes
from .decisions import decisions
from .delays import late_outcomes
from .elements import Child, tag
from .frame import figure, how_to_read, scroller, section, typeset
from .history import history
from .keys import keys
from .leaderboard import columns_of, leaderboard
from .names import name
from .paging import paging
from .schema import Certificate, Payload
from .top import verdict

SCORE_KINDS = {
    "probability": "probabilities, from 0 to 1",
    "percent": "percentages, from 0 to 100; divided by 100 for every method",
    "logit": "logits; made probabilities by 1 / (1 + exp(-logit)) for every method",
}


def methods(payload: Payload) -> Element:
    about = [(method["label"], method["about"]) for method in payload["methods"]]
    return section(
        "methods",
        "Which method",
        how_to_read("Each row is a method. All are scored on the same events. " + payload["intervals"]["legend"]),
        tag("div", class_="controls", id="leaderboard-metric"),
        scroller("Leaderboard", leaderboard(payload)),
        tag(
            "p",
            "Every method made its forecast before it learnt the outcome. Warm-up events are not scored. "
            + typeset(f"{payload['intervals']['sentence']} {payload['bootstrap']['sentence']}"),
            class_="small",
        ),
        _explained("What the methods are", about),
        _explained("What the columns mean", columns_of(payload)),
    )


def _explained(summary: str, terms: Sequence[tuple[str, str]]) -> Element:
    meanings = (tag("div", tag("dt", term), tag("dd", typeset(meaning))) for term, meaning in terms)
    return tag("details", tag("summary", summary), tag("dl", *meanings, class_="about"))


def over_time(payload: Payload) -> Element:
    hides = " Click a name to hide or show it." if len(payload["methods"]) > 1 else ""
    return section(
        "time",
        "Over time",
        figure(
            "windows",
            "Each line is a method, each point a window of the log; lower is better. A line that climbs has lost touch "
            "with the outcomes." + hides,
        ),
        figure(
            "drift",
            "The share of ones (base rate) beside the mean raw score. Where the two part, there is something to "
            "correct.",
        )
        if len(payload["windows"]["start"]) > 1
        else None,
    )


def reliability(payload: Payload) -> Element:
    periods = len(payload["reliability"]["periods"])
    small = " The small pictures are the same for each period: choose one, or move the slider." if periods > 1 else ""
    return section(
        "reliability",
        "Reliability",
        figure(
            "curves",
            "A point on the diagonal keeps its word: of the events given 30 %, 30 % happen. Above it the forecast "
            "was too low, below it too high. The shaded bands hold for all points of a curve at once (95 %): where one "
            "misses the diagonal, luck is no explanation. The bars below count the events; bins of equal mass hold as "
            "many events each." + small,
        ),
    )


def trajectories(payload: Payload) -> Element | None:
    learnt = payload["trajectories"]["methods"]
    if not any(method["params"] or method["lanes"] for method in learnt.values()):
        return None
    lanes = any(method["lanes"] for method in learnt.values())
    return section(
        "learnt",
        "What was learnt",
        figure(
            "params",
            "The correction as it was at each moment. Flat lines: the same correction served throughout; lines that "
            "move: the relation of score and outcome changed and the method followed.",
        ),
        figure(
            "lanes",
            "How far the method trusts each pace of drift at each moment: the taller a lane, the more weight it has, "
            "and all add up to one. Weight on the faster lanes means that the world was changing.",
        )
        if lanes
        else None,
    )


def evidence(payload: Payload) -> Element | None:
    if len(payload["methods"]) < 2:
        return None
    return section(
        "evidence",
        "Is the raw score calibrated?",
        figure(
            "evalue",
            "The logarithm of how many times more probable the outcomes were under the method than under the raw "
            f"score. {_line(payload)} Below zero the raw score did better.",
        ),
        link="Evidence",
    )


def _line(payload: Payload) -> str:
    """Why the dotted line is where it is: the best of several methods has several chances to look good by luck."""
    odds = math.exp(payload["evalue"]["threshold"])
    compared = round(odds / 20)
    above = f"Above the dotted line ({odds:,.0f} to 1) is strong evidence that the raw score is not calibrated"
    if compared < 2:
        return f"{above}, whenever you look."
    return (
        f"{above}, whenever you look and at whichever method: 20 to 1 would do for one method chosen beforehand, and "
        f"the line is at {compared} times that because each of the {compared} compared is another chance to cross it "
        "by luck."
    )


def certificates(payload: Payload) -> Element | None:
    if not payload["certificates"]:
        return None
    labels = {method["name"]: method["label"] for method in payload["methods"]}
    named = ("Method", "What", "Observed", "Bound", "Promise", "Proven statement", "Applies")
    body = tag("tbody")
    for row in payload["certificates"]:
        body.append(
            tag(
                "tr",
                tag("th", labels.get(row["method"], row["method"]), scope="row"),
                tag("td", row["what"]),
                tag("td", significant(row["observed"]), class_="number"),
                tag("td", significant(row["bound"]), class_="number"),
                tag("td", *_promise(row)),
                tag("td", row["statement"], class_="prose"),
                tag("td", row["applies"], class_="prose"),
            )
        )
    head = tag("tr", *(tag("th", name, scope="col") for name in named))
    return section(
        "certificates",
        "Guarantees",
        how_to_read(
            "A theorem bounds each observed number from above. Where it covers this log the bound is a promise for "
            "any outcomes, and the badge tells whether it holds. A promise in expectation is about the mean over the "
            "method's random draws: a single draw may be above it. Where the theorem does not cover this log (the last "
            "column tells why) the bound is a yardstick, and nothing is promised."
        ),
        scroller("Guarantees", tag("table", tag("thead", head), body, class_="plain")),
    )


def _promise(row: Certificate) -> list[Element]:
    if row["promised"] and row["in_expectation"] and not row["holds"]:
        return [tag("span", "above, in this draw", class_="badge unpromised")]
    if row["promised"]:
        state = "holds" if row["holds"] else "broken"
        return [tag("span", state, class_=f"badge {state}")]
    kept = tag("span", "kept" if row["holds"] else "not kept", class_="kept")
    return [tag("span", "not promised", class_="badge unpromised"), kept]


def data(payload: Payload) -> Element:
    log = payload["data"]
    first = "the first is" if log["warmup"] == 1 else f"the first {count(log['warmup'])} are"
    warm_up = f"; {first} the warm-up and not scored" if log["warmup"] else ""
    facts: list[tuple[str, Child | list[Child]]] = [
        ("Read from", _names(log["source"])),
        ("Span", " to ".join(_moment(end) for end in log["span"]) if log["span"] else "no times given"),
        ("Rows", f"{count(log['rows'])} read, {count(log['used'])} used"),
        ("Judged", count(log["judged"]) + warm_up),
        *_scores(payload),
    ]
    if log["keys"] is not None:
        facts.append(("Keys", count(log["keys"])))
    for role, column in log["columns"].items():
        guessed = " (guessed from its name)" if column["guessed"] else ""
        facts.append((f"Column: {role.replace('_', ' ')}", [name(column["name"]), guessed]))
    return section(
        "data",
        "The data",
        tag("dl", *(_fact(term, value) for term, value in facts), class_="facts"),
        *(tag("p", note) for note in log["notes"]),
        _skipped(payload),
    )


def _scores(payload: Payload) -> list[tuple[str, Child | list[Child]]]:
    """What the scores are, and their means."""
    log, kinds = payload["data"], SCORE_KINDS
    rate, mean = percent(log["base_rate"]), percent(log["mean_score"])
    if "classes" not in payload:
        return [("Base rate", rate), ("Mean raw score", mean), ("Scores are", kinds[log["score_kind"]])]
    kind = "logits; made probabilities by softmax" if log["score_kind"] == "logit" else kinds[log["score_kind"]]
    return [
        ("Classes", count(payload["classes"]["total"])),
        ("Accuracy of the raw scores", rate),
        ("Mean raw confidence", mean),
        ("Scores are", kind),
    ]


def _names(names: Sequence[str]) -> list[Child]:
    """Names between commas."""
    listed: list[Child] = []
    for each in names:
        listed += [", ", name(each)] if listed else [name(each)]
    return listed or [NOTHING]


def _fact(term: str, value: Child | list[Child]) -> Element:
    return tag("div", tag("dt", term), tag("dd", *(value if isinstance(value, list) else [value])))


def _skipped(payload: Payload) -> Element:
    skipped = payload["data"]["skipped"]
    if not skipped:
        return tag("p", "No row was skipped.", class_="small")
    body = tag("tbody")
    for row in skipped:
        cells = (
            tag("td", row["reason"]),
            tag("td", count(row["count"]), class_="number"),
            tag("td", name(row["first"])),
        )
        body.append(tag("tr", *cells))
    head = tag("tr", *(tag("th", name, scope="col") for name in ("Skipped because", "Rows", "First")))
    return scroller("Skipped rows", tag("table", tag("thead", head), body, class_="plain"))


def repeat(payload: Payload) -> Element:
    versions = ", ".join(f"{name} {version}" for name, version in payload["versions"].items())
    command = payload["command"]
    return section(
        "repeat",
        "Repeat it",
        tag("div", tag("pre", tag("code", command, id="command")), class_="command")
        if command
        else tag("p", "Made from Python, with calibeat.backtest()."),
        tag("p", " · ".join(filter(None, [_created(payload), versions])), class_="small", id="versions"),
    )


def _created(payload: Payload) -> str:
    created = payload.get("created")
    return "" if created is None else f"Made on {created[:10]} at {created[11:16]} UTC"


def _moment(text: str) -> str:
    """An ISO time as people write it: no T, no midnight."""
    return text.replace("T", " ").removesuffix(" 00:00:00")


def page(payload: Payload) -> list[Element]:
    """Every section that this payload has something for, in reading order."""
    if "classes" in payload:
        middle = classes.pictures(payload)
    else:
        middle = [over_time(payload), reliability(payload), trajectories(payload)]
    parts: Iterable[Element | None] = (
        verdict(payload),
        methods(payload),
        decisions(payload),
        *middle,
        evidence(payload),
        paging(payload),
        keys(payload),
        late_outcomes(payload),
        certificates(payload),
        history(payload),
        data(payload),
        repeat(payload),
    )
    return [part for part in parts if part is not None]
