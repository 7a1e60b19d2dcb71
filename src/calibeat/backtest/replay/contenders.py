"""What is replayed beside the methods that were chosen: rivals and other scores of the log, and other kinds of keys."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from calibeat.core.method import AUTO, BM, PRESETS, Method

from .outside import OneStream, Outside, PooledStart, column_method, other_score_method

WITHOUT_KEYS, POOLED_START = "without keys", "with a pooled start"

Named = tuple[str, Method]


@dataclass(frozen=True)
class KeyVariants:
    """The names of one method with keys, without them, and with keys that start from what all keys have taught."""

    keyed: str
    without: str
    pooled: str


def with_others(methods: list[Named], columns: Mapping[str, str], *, asked: bool) -> tuple[list[Named], list[str]]:
    """The methods, and what stands in other columns of the log; and notes. `columns` are names by role, in order.

    Of another model's scores the raw score is compared, and AUTO; all the methods, if they were `asked` for by name.
    """
    found = dict(methods)
    notes: list[str] = []
    for at, (role, name) in enumerate(columns.items()):
        if role.startswith("rival"):
            found[_free(name, found)] = column_method(at, f"Forecasts that stand in the log, as {name!r}.")
            continue
        found[_free(name, found)] = column_method(at, f"The raw score of another model, {name!r}.")
        for label, method in methods:
            if method == BM or isinstance(method, Outside) or not (asked or method == AUTO):
                continue
            shown = label.upper() if label in PRESETS else label
            about = f"{shown} on the scores of another model, {name!r}."
            found[_free(f"{shown} of {name}", found)] = other_score_method(method, at, about)
        notes.append(f"Methods of {name!r} say so in their names. The others, and raw, are of the first score.")
    return list(found.items()), notes


def with_key_variants(methods: list[Named]) -> tuple[list[Named], KeyVariants | None]:
    """AUTO, or the first method, is also replayed without keys and with a pooled start."""
    ours = [(name, method) for name, method in methods if method != BM and not isinstance(method, Outside)]
    if not ours:
        return methods, None
    name, method = next(((name, method) for name, method in ours if method == AUTO), ours[0])
    shown = name.upper() if name in PRESETS else name
    taken = dict(methods)
    variants = KeyVariants(name, *(_free(f"{shown} {kind}", taken) for kind in (WITHOUT_KEYS, POOLED_START)))
    one = Outside(
        about=f"{shown} on all events as one stream: keys are not looked at.",
        make=lambda raw_first: OneStream(method, raw_first=raw_first),
        base=method,
        one_stream=True,
    )
    pooled = Outside(
        about=f"{shown} with a stream for each key; a new key starts from what all keys have taught.",
        make=lambda raw_first: PooledStart(method, raw_first=raw_first),
        base=method,
        pooled=True,
    )
    return [*methods, (variants.without, one), (variants.pooled, pooled)], variants


def _free(name: str, taken: Mapping[str, object]) -> str:
    """A name that no other contender has."""
    while name in taken or name.lower() == "raw":
        name += " (log)"
    return name
