"""The report: one HTML file that needs nothing but itself.

What a reader must get without JavaScript (verdict, leaderboard, guarantees, data) is written into the page. The numbers
behind the pictures are embedded as JSON and drawn by static/*.js with uPlot (vendor/). The page makes no request and
runs no script but ours, by its hash.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from importlib import resources
from pathlib import Path
from string import Template
from typing import Any, cast
from xml.etree.ElementTree import Element

from calibeat._util.files import atomic
from calibeat._util.words import NOTHING, count, percent, significant

from .by_key import by_key
from .classes import by_class, priors
from .decisions import decisions
from .delays import delays, folded, later
from .elements import Child, figure, harmless, how_to_read, labels_of, markup, name, plain_table, section, tag
from .history import history
from .paging import paging
from .schema import Certificate, Keys, Payload
from .segments import offered, segments
from .verdict import methods, verdict

SCRIPTS = (
    *("format", "palette", "chart", "pictures", "paging", "decisions", "history", "reliability", "classes"),
    *("tables", "by_key", "segments", "theme", "start"),
)
DIGITS = 6  # more than a pixel or a table shows, and a third of the bytes
SCORE_KINDS = {
    "probability": "probabilities, from 0 to 1",
    "percent": "percentages, from 0 to 100; divided by 100 for every method",
    "logit": "logits; made probabilities by 1 / (1 + exp(-logit)) for every method",
}


def html(payload: Mapping[str, object]) -> str:
    """The whole page as text.

    Everything that comes from outside goes through a serialiser: names of columns and keys are text, never markup.
    """
    safe = cast(Payload, harmless(payload))
    parts = sections(safe)
    links = [tag("a", part.get("aria-label"), href=f"#{part.get('id')}") for part in parts[1:]]
    style, script = _style(), _script()
    page = Template(_text("static", "page.html")).substitute(
        policy=f"default-src 'none'; img-src data:; style-src {_hash(style)}; script-src {_hash(script)}; "
        "base-uri 'none'; form-action 'none'",
        title=markup(tag("title", f"{safe['title']} – calibeat")),
        name=markup(tag("p", name(safe["title"]), class_="title")),
        links=" ".join(markup(link) for link in links),
        style=style,
        main="\n".join(markup(part) for part in parts),
        payload=embedded(safe),
        script=script,
    )
    return page.encode("utf-8", "replace").decode()  # a key may hold half a character, a file may not


def write(payload: Mapping[str, object], path: str | os.PathLike[str]) -> None:
    """Write the page to `path`, whole or not at all."""
    text = html(payload)
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    with atomic(target, "w") as file:
        file.write(text)


def embedded(payload: Payload) -> str:
    r"""The payload as JSON that cannot end the script element it stands in.

    >>> embedded({"title": "</script><!--", "keys": None, "delay": None})
    '{"title":"\\u003c/script\\u003e\\u003c!--","keys":null,"delay":null}'
    """
    slim: dict[str, Any] = {**payload}
    if payload["keys"] is not None:
        slim["keys"] = _columns(payload["keys"], [method["name"] for method in payload["methods"]])
    if payload["delay"] is not None:
        slim["delay"] = {**payload["delay"], "histogram": folded(payload["delay"]["histogram"])}
    text = json.dumps(_short(slim), separators=(",", ":"), allow_nan=False)
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _columns(keys: Keys, names: list[str]) -> dict[str, Any]:
    """Rows repeat every name two thousand times; columns say it once."""
    rows = keys["rows"]
    by_method = {name: [row["methods"].get(name) for row in rows] for name in names}
    return {
        "key": [row["key"] for row in rows],
        "events": [row["events"] for row in rows],
        "base_rate": [row["base_rate"] for row in rows],
        "methods": {
            name: {field: [cell and cell[field] for cell in cells] for field in ("log_loss", "brier", "ce")}
            for name, cells in by_method.items()
        },
    }


def _short(value: Any) -> Any:
    """Floats with the digits that count; what is not a number becomes null, as JSON knows no other way."""
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}") if abs(value) < float("inf") else None
    if isinstance(value, dict):
        return {key: _short(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_short(item) for item in value]
    return value


@cache
def _style() -> str:
    return "\n" + _text("vendor", "uPlot.min.css") + "\n" + _text("static", "style.css")


@cache
def _script() -> str:
    ours = "\n".join(_text("static", f"{name}.js") for name in SCRIPTS)
    library = _text("static", "pixels.js") + _text("vendor", "uPlot.iife.min.js")
    return f'\n{library}\n(() => {{\n"use strict";\n{ours}\n}})();\n'


def _text(*path: str) -> str:
    return resources.files(__package__).joinpath(*path).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


# ---- sections that are little more than a picture or a table --------------------------------------------------------


def sections(payload: Payload) -> list[Element]:
    """Every section that this payload has something for, in reading order."""
    keys, delay = payload["keys"], payload["delay"]
    learnt = [by_class(payload), priors(payload)] if "classes" in payload else [trajectories(payload)]
    parts: Iterable[Element | None] = (
        verdict(payload),
        methods(payload),
        decisions(payload, payload["decisions"]) if "decisions" in payload else None,
        over_time(payload),
        reliability(payload),
        segments(payload, payload["segments"]) if "segments" in payload else None,
        offered(payload["offered"]) if "offered" in payload else None,
        *learnt,
        evidence(payload),
        paging(payload, payload["paging"]),
        None if keys is None else by_key(payload, keys),
        None if delay is None else delays(payload, delay),
        later(payload, payload["later"]) if "later" in payload else None,
        certificates(payload),
        history(payload["history"], many="classes" in payload),
        data(payload),
        repeat(payload),
    )
    return [part for part in parts if part is not None]


def over_time(payload: Payload) -> Element:
    hides = " Click a name to hide or show it." if len(payload["methods"]) > 1 else ""
    lines = "A line that climbs has lost touch with the outcomes."
    drift = "The share of ones (base rate) beside the mean raw score."
    if "classes" in payload:
        lines = "The calibration error is that of the top class: how far its confidence is from how often it is right."
        drift = "How often the top class of the raw scores was right, beside the confidence that they had in it."
    return section(
        "time",
        "Over time",
        figure("windows", f"Each line is a method, each point a window of the log; lower is better. {lines}{hides}"),
        figure("drift", f"{drift} Where the two part, there is something to correct.")
        if len(payload["windows"]["start"]) > 1
        else None,
    )


def reliability(payload: Payload) -> Element:
    periods = len(payload["reliability"]["periods"])
    small = " The small pictures are the same for each period: choose one, or move the slider." if periods > 1 else ""
    title = "Reliability"
    points = (
        "A point on the diagonal keeps its word: of the events given 30 %, 30 % happen. Above it the forecast was too "
        "low, below it too high."
    )
    if "classes" in payload:
        title = "Confidence"
        points = (
            "Each event has a top class and a confidence in it. A point on the diagonal keeps its word: of the events "
            "with a confidence of 80 %, the top class is right in 80 %. Below it the method is over-confident, above "
            "it under-confident."
        )
    return section(
        "reliability",
        title,
        figure(
            "curves",
            f"{points} The shaded bands hold for all points of a curve at once (95 %): where one misses the diagonal, "
            "luck is no explanation. The bars below count the events; bins of equal mass hold as many events each."
            + small,
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
    labels = labels_of(payload)
    headings = ("Method", "What", "Observed", "Bound", "Promise", "Proven statement", "Applies")
    rows = [
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
        for row in payload["certificates"]
    ]
    return section(
        "certificates",
        "Guarantees",
        how_to_read(
            "A theorem bounds each observed number from above. Where it covers this log the bound is a promise for "
            "any outcomes, and the badge tells whether it holds. A promise in expectation is about the mean over the "
            "method's random draws: a single draw may be above it. Where the theorem does not cover this log (the last "
            "column tells why) the bound is a yardstick, and nothing is promised."
        ),
        plain_table("Guarantees", headings, rows),
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
    if "segments" in payload:
        facts.append(("Groups", _names(payload["segments"]["attributes"])))
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
    rows = [
        tag(
            "tr",
            tag("td", row["reason"]),
            tag("td", count(row["count"]), class_="number"),
            tag("td", name(row["first"])),
        )
        for row in skipped
    ]
    return plain_table("Skipped rows", ("Skipped because", "Rows", "First"), rows)


def repeat(payload: Payload) -> Element:
    versions = ", ".join(f"{name} {version}" for name, version in payload["versions"].items())
    command, created = payload["command"], payload["created"]
    return section(
        "repeat",
        "Repeat it",
        tag("div", tag("pre", tag("code", command, id="command")), class_="command")
        if command
        else tag("p", "Made from Python, with calibeat.backtest()."),
        tag("p", f"Made on {created[:10]} at {created[11:16]} UTC · {versions}", class_="small", id="versions"),
    )


def _moment(text: str) -> str:
    """An ISO time as people write it: no T, no midnight."""
    return text.replace("T", " ").removesuffix(" 00:00:00")
