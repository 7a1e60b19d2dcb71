"""The section "Would it have paged?": what monitors of some methods would have said along the log."""

from __future__ import annotations

from collections.abc import Sequence
from xml.etree.ElementTree import Element

from calibeat._util.words import count, counted, number, percent

from .elements import Child, figure, how_to_read, labels_of, name, plain_table, section, table_row, tag, typeset
from .schema import Page, Paging, Payload, Watched

PAGES_SHOWN = 8  # pages of a method that are seen at once; the others unfold


def paging(payload: Payload, found: Paging) -> Element | None:
    """The section; nothing where no method has a monitor."""
    if not found["methods"]:
        return None
    gains, many = len(found["methods"]) > 1, "classes" in payload
    gained = "What a method has gained over the raw score so far, in Brier score"
    if many:
        gained += " of its top class (right or not)"
    return section(
        "paging",
        "Would it have paged?",
        tag("p", typeset(found["sentence"])),
        _promise(found, many=many),
        _summary(payload, found),
        figure(
            "detector",
            "How near each monitor was to an alarm, on a scale of powers of ten: at the dotted line it raises one and "
            "starts again. A line that stays far below never had a reason. The first 1,024 outcomes only tell how "
            "strongly outcomes come in clusters.",
        ),
        *_pages(payload, found),
        tag("h3", "What was gained") if gains else None,
        figure(
            "gain",
            f"{gained}: above zero it forecasts better. The band holds at every moment at once (95 %), so you may stop "
            "looking whenever you like.",
        )
        if gains
        else None,
        link="Paging",
    )


def _promise(found: Paging, *, many: bool) -> Element:
    top = "It reads the confidence in the top class, and whether that was right. " if many else ""
    return how_to_read(
        f"A monitor reads outcomes in the order of their forecasts, also where they came late. {top}If forecasts are "
        f"calibrated, it raises one false alarm in {count(int(found['arl']))} outcomes at most, on average, however "
        f"often you look; this log has {count(found['outcomes'])}. Alarms that follow closely are one page."
    )


def _summary(payload: Payload, found: Paging) -> Element:
    labels = labels_of(payload)
    headings = ("Monitor of", "Pages", "Alarms", "First page", "Gain over the raw score", "95 %, at every moment")
    rows, raw = [], payload["methods"][0]["name"]
    for method, watched in found["methods"].items():
        first = watched["shown"][0]["at"] if watched["shown"] else None
        mean, low, high = watched["gain"] if method != raw else (None, None, None)
        ends = "–" if low is None or high is None else f"{number(low, 5, sign=True)} to {number(high, 5, sign=True)}"
        cells: list[str] = [
            count(watched["pages"]),
            count(watched["alarms"]),
            "–" if first is None else _moment(first),
            number(mean, 5, sign=True),
            ends,
        ]
        rows.append(table_row(name(labels.get(method, method)), cells))
    return plain_table("Monitors", headings, rows, id_="monitors")


def _pages(payload: Payload, found: Paging) -> list[Element]:
    """The pages of each method: the latest matter most, the first tells when it began."""
    labels, parts = labels_of(payload), list[Element]()
    for method, watched in found["methods"].items():
        if not watched["shown"]:
            continue
        title = tag("h3", "Pages of ", name(labels.get(method, method)))
        first, more = watched["shown"][:PAGES_SHOWN], watched["shown"][PAGES_SHOWN:]
        parts += [title, _table(labels.get(method, method), first)]
        if more:
            parts.append(
                tag("details", tag("summary", _rest(watched, len(more))), _table(labels.get(method, method), more))
            )
    return parts


def _rest(watched: Watched, shown: int) -> str:
    left_out = watched["pages"] - PAGES_SHOWN - shown
    later = f"Show {counted(shown, 'later page')}"
    return later if not left_out else f"{later}; {counted(left_out, 'page')} between them left out"


def _table(label: str, pages: Sequence[Page]) -> Element:
    late = all(page["heard"] is not None for page in pages)
    when = ["Forecasts up to", "Pages once outcomes are in"] if late else ["Pages at"]
    headings = [*when, "Began, estimated", "Forecasts are", "Region", "Alarms"]
    rows = []
    for page in pages:
        alarms = count(page["alarms"])
        if page["alarms"] > 1:
            alarms += f", the last at {_moment(page['last'])}"
        cells: list[Child] = [
            *([_moment(page["heard"])] if late and page["heard"] is not None else []),
            _moment(page["since"]),
            page["what"],
            _region(page),
            alarms,
        ]
        rows.append(table_row(_moment(page["at"]), cells, class_=None))
    return plain_table(f"Pages of {label}", headings, rows, class_="plain pages")


def _region(page: Page) -> str:
    if page["low"] <= 0.0 and page["high"] >= 1.0:
        return "all forecasts"
    return f"{percent(page['low'])} to {percent(page['high'])}".replace(".0\u00a0%", "\u00a0%")


def _moment(at: str | int) -> str:
    return at.replace("T", " ") if isinstance(at, str) else f"event {at:,}"
