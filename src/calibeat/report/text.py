"""The verdict and the leaderboard as plain text, for a terminal."""

from __future__ import annotations

import textwrap
from typing import cast

from calibeat._util.words import decimals

from .elements import harmless, labels_of
from .schema import LeaderboardRow, Number, Payload
from .verdict import example

WIDTH = 118


def page(payload: Payload) -> str:
    """What `calibeat backtest` prints."""
    payload = cast(Payload, harmless(payload))
    verdict, data = payload["verdict"], payload["data"]
    columns = ", ".join(
        f"{role} in {column['name']!r}" + (" (guessed)" if column["guessed"] else "")
        for role, column in data["columns"].items()
    )
    counted = (
        f"{', '.join(data['source'])}: {data['rows']:,} rows, {data['used']:,} of them replayed, "
        f"{data['judged']:,} judged after a warm-up of {data['warmup']:,}"
    )
    counted += f", from {data['span'][0]} to {data['span'][1]}." if data["span"] else "."
    if data["score_kind"] != "probability":
        counted += {"percent": " Scores are percent.", "logit": " Scores are logits."}[data["score_kind"]]
    area = "" if "classes" in payload else ", except for AUC"
    lines = [
        f"{verdict['headline']}.  [{verdict['confidence']}]",
        *_filled(example(payload)),
        *(line for caveat in verdict["caveats"] for line in _filled(caveat)),
        *(_filled(payload["later"]["sentence"]) if "later" in payload else []),
        "",
        *_filled(" ".join(verdict["sentences"])),
        "",
        *(line for sentence in _consequences(payload) for line in [*_filled(sentence), ""]),
        *_filled(counted + (f" Columns: {columns}." if columns else "") + _groups(payload)),
        *(
            line
            for skipped in data["skipped"]
            for line in _filled(f"Skipped {skipped['count']:,}: {skipped['reason']}, first at {skipped['first']}.")
        ),
        "",
        *leaderboard(payload),
        "",
        f"* best. Lower is better{area}. [ ]: 95 % interval of the difference to the raw score on this log.",
        *_filled(payload["intervals"]["sentence"]),
        *_filled(payload["bootstrap"]["sentence"]),
        *(line for note in data["notes"] for line in _filled(note)),
    ]
    return "\n".join(lines) + "\n"


def _groups(payload: Payload) -> str:
    return f" Groups: {', '.join(payload['segments']['attributes'])}." if "segments" in payload else ""


def _consequences(payload: Payload) -> list[str]:
    """What the choice changes in decisions and pages, and how to deploy it."""
    parts, service = (payload.get("decisions"), payload["paging"]), payload["answer"]["service"]
    sentences = [part["sentence"] for part in parts if part is not None and part["sentence"]]
    if "segments" in payload:
        sentences.append(payload["segments"]["sentence"])
    if "offered" in payload:
        sentences.append(payload["offered"]["sentence"])
    if service and payload["verdict"]["confidence"] != "unclear":
        note = payload["answer"]["note"]
        sentences += [f"Deploy it: {service[-1]}", *([note] if note else [])]
    return sentences


def leaderboard(payload: Payload) -> list[str]:
    """One line a method, the least log-loss first."""
    labels = labels_of(payload)
    rows = sorted(payload["table"], key=lambda row: row["log_loss"] or 0.0)
    width = max(len(label) for label in labels.values())
    digits = decimals(end for row in rows if row["vs_raw"] for end in row["vs_raw"]["log_loss"])
    columns = [
        ["", *(labels[row["method"]].ljust(width) for row in rows)],
        _column("log-loss", [row["log_loss"] for row in rows], digits),
        ["against raw, on this log", *(_against_raw(row, digits) for row in rows)],
        _column("top-label CE" if "classes" in payload else "CE", [row["ce"] for row in rows]),
        ["luck alone", *(_number(row["ce_luck"], decimals(row["ce"] for row in rows)) for row in rows)],
        _column("Brier", [row["brier"] for row in rows]),
        _column("AUC", [row["auc"] for row in rows], 4, largest=True)
        if "classes" not in payload
        else _column("class-wise CE", [payload["classes"]["methods"][row["method"]]["classwise_ce"] for row in rows]),
    ]
    widths = [max(len(cell) for cell in column) for column in columns]
    return [
        "  " + "  ".join(cell.rjust(w) for cell, w in zip(line, widths, strict=True)).rstrip()
        for line in zip(*columns, strict=True)
    ]


def _column(head: str, values: list[Number], digits: int | None = None, *, largest: bool = False) -> list[str]:
    digits = decimals(values) if digits is None else digits
    shown = [_number(value, digits) for value in values]
    known = [text for text in shown if text != "-"]
    best = (max if largest else min)(known, key=float) if known else ""
    return [f"{head} ", *(text + ("*" if text == best else " ") for text in shown)]


def _number(value: Number, digits: int) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def _against_raw(row: LeaderboardRow, digits: int) -> str:
    if row["vs_raw"] is None:
        return ""
    difference, low, high = row["vs_raw"]["log_loss"]
    return f"{difference:+.{digits}f} [{low:+.{digits}f}, {high:+.{digits}f}]"


def _filled(text: str) -> list[str]:
    return textwrap.wrap(text, WIDTH, break_on_hyphens=False)
