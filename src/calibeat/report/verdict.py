"""The top of the page: the verdict, one number that anybody understands, how sure it is, and what to do."""

from __future__ import annotations

import math
from xml.etree.ElementTree import Element

from calibeat._util.words import count, decimals, number, percent

from .elements import labels_of, name, tag, typeset
from .schema import AnswerInfo, Happened, Payload

CONFIDENCE = {"sure": "We are sure", "likely": "Likely, not certain", "unclear": "Not settled by this log"}
BAR_WIDTH, BAR_HEIGHT = 400, 14


def verdict(payload: Payload) -> Element:
    """The section."""
    found = payload["verdict"]
    sentences = [tag("p", typeset(sentence), class_="lead") for sentence in found["sentences"]]
    return tag(
        "section",
        tag("p", CONFIDENCE[found["confidence"]], class_=f"confidence {found['confidence']}"),
        tag("h1", typeset(found["headline"]).replace("log-loss", "log\u2011loss")),
        *_for_everybody(payload, payload["answer"]),
        tag("details", tag("summary", "The numbers behind it, for experts"), *sentences, id="expert"),
        _figures(payload),
        id="verdict",
    )


def _for_everybody(payload: Payload, answer: AnswerInfo) -> list[Element]:
    rows = [_row(payload, one, scale_of(answer["happened"])) for one in answer["happened"]]
    return [
        tag("p", typeset(example(payload)), class_="lead", id="example"),
        tag("div", *rows, class_="happened"),
        tag("p", typeset(answer["sure"]), class_="lead", id="sure"),
        _do_this(answer),
    ]


def scale_of(happened: list[Happened]) -> int:
    """Of how many events to speak: a thousand, or more where less than ten of them are forecast.

    >>> scale_of([{"method": "raw", "count": 9, "forecast": 0.35, "outcome": 0.2}])
    1000
    >>> scale_of([{"method": "raw", "count": 9, "forecast": 0.0002, "outcome": 0.2}])
    100000
    """
    least = max(min(one["forecast"] for one in happened), 1e-6)
    return 1000 * 10 ** max(0, math.ceil(-2.0 - math.log10(least) - 1e-9))


def example(payload: Payload) -> str:
    """Of a thousand events or more at about the same forecast, how many happened: the raw score, then the choice."""
    labels, happened = labels_of(payload), payload["answer"]["happened"]
    scale = scale_of(happened)
    sentences: list[str] = []
    for one in happened:
        who = "the raw score" if one["method"] == payload["methods"][0]["name"] else labels[one["method"]]
        again = " events" if not sentences else ""
        if "classes" in payload:
            sentences.append(
                f"Of {scale:,}{again} whose top class {who} gives about {_about(one['forecast'])}, it is right in "
                f"{round(scale * one['outcome']):,}."
            )
            continue
        sentences.append(
            f"Of {scale:,}{again} that {who} puts at about {_about(one['forecast'])}, "
            f"{round(scale * one['outcome']):,} happened."
        )
    return " ".join(sentences)


def _about(share: float) -> str:
    """
    >>> _about(0.3499), _about(0.0123), _about(0.00021)
    ('35 %', '1.2 %', '0.021 %')
    """
    if 0.1 <= share <= 0.99:
        return f"{100 * share:.0f} %"
    return f"{100 * share:.1f} %" if share > 0.001 else percent(share).replace("\u00a0", " ")


def _row(payload: Payload, one: Happened, scale: int) -> Element:
    """A bar as long as what happened, and a stroke where the forecast was."""
    labels, pair = labels_of(payload), payload["answer"]["happened"]
    most = max(max(each["forecast"], each["outcome"]) for each in pair) * 1.08 or 1.0
    said, came = (f"{BAR_WIDTH * value / most:.1f}" for value in (one["forecast"], one["outcome"]))
    picture = tag(
        "svg",
        tag("rect", x="0", y="2", width=came, height=f"{BAR_HEIGHT - 4}", class_="came"),
        tag("line", x1=said, x2=said, y1="0", y2=f"{BAR_HEIGHT}", class_="said"),
        viewBox=f"0 0 {BAR_WIDTH} {BAR_HEIGHT}",
        preserveAspectRatio="none",
        aria_hidden="true",
    )
    came_true = "right" if "classes" in payload else "happened"
    text = (
        f"{round(scale * one['outcome']):,} of {scale:,} {came_true}, {round(scale * one['forecast']):,} were forecast"
    )
    kind = "raw" if one["method"] == payload["methods"][0]["name"] else "ours"
    return tag("div", tag("b", name(labels[one["method"]])), picture, tag("span", text), class_=kind)


def _do_this(answer: AnswerInfo) -> Element:
    return tag(
        "div",
        tag("h2", "Do this"),
        tag("p", typeset(answer["note"])) if answer["note"] else None,
        tag(
            "div",
            _code("In Python", answer["library"]),
            _code("As a service", answer["service"]) if answer["service"] else None,
            class_="codes",
        ),
        id="deploy",
    )


def _code(title: str, lines: list[str]) -> Element:
    return tag("div", tag("h3", title), tag("pre", tag("code", "\n".join(lines))), class_="command")


def _figures(payload: Payload) -> Element:
    found, data = payload["verdict"], payload["data"]
    table = {row["method"]: row for row in payload["table"]}
    chosen, raw = table[found["method"]], table[payload["methods"][0]["name"]]
    label = next(m["label"] for m in payload["methods"] if m["name"] == found["method"])
    digits = decimals([raw["log_loss"], raw["ce"], chosen["ce"]])
    many = "classes" in payload
    error = "top-label CE" if many else "calibration error"
    figures = [
        (count(data["judged"]), "event judged" if data["judged"] == 1 else "events judged"),
        (percent(data["base_rate"]), "accuracy, raw" if many else "base rate"),
        (percent(data["mean_score"]), "mean confidence, raw" if many else "mean raw score"),
        (number(raw["ce"], digits), f"{error}, raw (luck alone {number(raw['ce_luck'], digits)})"),
    ]
    if chosen is not raw:
        luck = number(chosen["ce_luck"], digits)
        figures.append((number(chosen["ce"], digits), f"{error}, {label} (luck alone {luck})"))
    return tag("dl", *(tag("div", tag("dd", value), tag("dt", text)) for value, text in figures), class_="figures")
