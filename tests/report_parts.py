"""Parts of the payloads of `report_payload`: what a year that drifts looks like."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import numpy as np

START = datetime(2013, 2, 1)  # noqa: DTZ001 - logs come without a zone too


def number(value: float) -> float:
    return float(value)


def stamps(n: int) -> list[str]:
    return [(START + timedelta(days=330 * i / n)).isoformat() for i in range(n)]


def smooth(rng: np.random.Generator, n: int, scale: float) -> np.ndarray:
    walk = np.cumsum(rng.normal(size=n))
    return scale * (walk - np.linspace(0, walk[-1], n)) / np.sqrt(n)


def paging(rng: np.random.Generator, names: tuple[str, ...], xs: list[Any], by: str) -> dict[str, Any]:
    """The raw score pages a dozen times, the second method once."""
    n = len(xs)

    def watched(name: str, pages: int) -> dict[str, Any]:
        level = np.minimum(1.0, 10 ** (-3 + smooth(rng, n, 4.0) + (2 if pages > 1 else 0)))
        level[: n // 20] = 0.0
        gain = np.zeros(n) if name == "raw" else 0.012 + smooth(rng, n, 0.004)
        half = 0.03 / np.sqrt(1.0 + np.arange(n))
        ends = [xs[min(n - 1, (i + 1) * n // 13)] for i in range(pages)]
        shown = [
            {
                "at": at,
                "heard": at if by == "time" else None,
                "since": xs[0],
                "what": ("too high", "too low", "too sure")[i % 3],
                "low": (0.0, 0.8)[i % 2],
                "high": (1.0, 0.95)[i % 2],
                "alarms": 1 + i,
                "last": at,
            }
            for i, at in enumerate(ends)
        ]
        return {
            "alarms": 3 * pages,
            "pages": pages + (40 if pages > 1 else 0),
            "shown": shown,
            "gain": [number(gain[-1]), number(gain[-1] - half[-1]), number(gain[-1] + half[-1])],
            "x": xs,
            "level": level.tolist(),
            "gains": np.column_stack([gain, gain - half, gain + half]).tolist(),
        }

    return {
        "by": by,
        "arl": 1_000_000.0,
        "outcomes": 309_772,
        "sentence": "A monitor of AUTO would have paged once. A monitor of the raw score would have paged 52 times.",
        "methods": {name: watched(name, pages) for name, pages in zip(names[:3], (12, 1, 0), strict=False)},
    }


def trajectory(rng: np.random.Generator, name: str, points: int) -> dict[str, Any]:
    params = {"a": (0.8 + smooth(rng, points, 0.2)).tolist(), "b": (-0.35 + smooth(rng, points, 0.4)).tolist()}
    if name != "auto":
        return {"params": params, "lanes": None}
    params["c"] = (0.1 + smooth(rng, points, 0.1)).tolist()
    lanes = ("still", "slow", "fast", "level only", "raw score", "paper's OPS")
    weight = np.exp([smooth(rng, points, 4.0) + rng.normal() for _ in lanes])
    weight /= weight.sum(axis=0)
    return {"params": params, "lanes": {lane: w.tolist() for lane, w in zip(lanes, weight, strict=True)}}


def reliability(
    rng: np.random.Generator, names: tuple[str, ...], periods: int, quality: dict[str, float]
) -> dict[str, Any]:
    middle = (np.arange(10) + 0.5) / 10
    curves: dict[str, list[Any]] = {}
    for name in names:
        curves[name] = []
        for _ in range(periods + 1):
            n = np.round(40_000 * np.exp(-middle * 5) * (rng.random(10) + 0.5)).astype(int)
            n[-1] = 0
            happened = np.clip(middle - quality[name] * 4 * middle + rng.normal(0, 0.012, 10), 0, 1)
            half = 1.96 * np.sqrt(happened * (1 - happened) / np.maximum(n, 1)) + 0.004
            empty = n == 0

            def some(values: np.ndarray, empty: np.ndarray = empty) -> list[float | None]:
                return [None if e else float(v) for v, e in zip(values, empty, strict=True)]

            curves[name].append(
                {
                    "count": n.tolist(),
                    "forecast": some(middle + rng.normal(0, 0.01, 10)),
                    "outcome": some(happened),
                    "low": some(np.maximum(0, happened - half)),
                    "high": some(np.minimum(1, happened + half)),
                }
            )
    months = [(START + timedelta(days=30 * i)).strftime("%b %Y") for i in range(periods)]
    labels = [{"label": label, "count": 25_000} for label in ["whole log", *months]]
    mass = {name: {**parts[0], "edge": [k / 10 for k in range(10)]} for name, parts in curves.items()}
    for one in mass.values():
        one["count"] = [v and 12_000 for v in one["count"]]
        one["forecast"] = [v if v is None else v * 0.6 for v in one["forecast"]]
    return {"bins": 10, "periods": labels, "methods": curves, "mass": mass}


def key_table(rng: np.random.Generator, names: tuple[str, ...], keys: int, loss: dict[str, float]) -> dict[str, Any]:
    rows = []
    for i in range(keys):
        worse = float(0.9 * np.exp(-i / 60) + rng.normal(0, 0.02))
        scores = {
            n: {
                "log_loss": loss[n] + (worse if n == "raw" else worse * 0.4),
                "brier": 0.15 + worse / 9,
                "ce": abs(worse) / 5,
            }
            for n in names
        }
        rows.append(
            {
                "key": f"carrier-{i:04d}/EWR-LAX",
                "events": int(rng.integers(20, 9000)),
                "base_rate": float(rng.random() * 0.5),
                "raw_log_loss": scores["raw"]["log_loss"],
                "methods": scores,
            }
        )
    differ = [
        {"key": row["key"], "events": row["events"], "forecast": 0.3, "outcome": 0.25, "gap": [-0.05, -0.09, -0.01]}
        for row in rows[:10]
    ]
    return {
        "differ": {"method": names[-1], "tested": keys, "beyond": 1, "rows": differ} if keys > 2 else None,
        "total": keys + 17,
        "shown": keys,
        "sentence": f"The {keys} of {keys + 17} keys with the largest loss are listed.",
        "rows": rows,
    }


def decisions(names: tuple[str, ...], xs: list[Any], by: str, judged: int) -> dict[str, Any]:
    """At a threshold of 20 %: the later a method is listed, the less it saves."""
    t = (np.arange(1, 100) / 100).tolist()
    few = xs[:: max(1, len(xs) // 40)]

    def action(i: int, name: str) -> dict[str, Any]:
        saved = 0.0 if name == "raw" else 6.5 - i
        return {
            "method": name,
            "actions": 90_000 + i,
            "hits": 40_000 + i,
            "for_nothing": 50_000,
            "missed": 32_000 - i,
            "new": 5_000 * (i > 0),
            "new_hits": 2_100 * (i > 0),
            "dropped": 7_000 * (i > 0),
            "dropped_hits": 900 * (i > 0),
            "cost": 0.25 * 50_000 + 32_000 - judged * saved / 1000,
            "cost_per_1000": 144.1 - saved,
            "saved_per_1000": [saved, saved - 2.5 * (i > 0), saved + 2.5 * (i > 0)],
        }

    def path(i: int) -> list[list[float]]:
        grown = np.linspace(0, (6.5 - i) * judged / 1000, len(few))
        return np.column_stack([grown, grown - 200, grown + 200]).tolist()

    return {
        "curve": {
            "threshold": t,
            "everyone": [0.24 - 0.76 * x / (1 - x) for x in t],
            "methods": {name: [0.24 * (1 - x) ** (1.5 + 0.05 * i) for x in t] for i, name in enumerate(names)},
        },
        "costs": {"threshold": 0.2, "fp": 0.25, "fn": 1.0, "given": False},
        "actions": [action(i, name) for i, name in enumerate(names)],
        "over_time": {"by": by, "x": few, "methods": {name: path(i) for i, name in enumerate(names)}},
        "sentence": "Act where the forecast is 20 % or more. AUTO decides otherwise on 12,000 of 308,772 events.",
    }


def history(rng: np.random.Generator, xs: list[Any], by: str) -> dict[str, Any]:
    n = len(xs)
    median = 0.25 + smooth(rng, n, 0.05)

    def period(i: int) -> dict[str, Any]:
        return {
            "label": f"Period {i + 1}",
            "count": 25_000 + i,
            "missing": 0.02 + i / 100,
            "base_rate": 0.2,
            "mean_score": 0.3,
            "ones_delay": 3600.0 * (i + 1),
            "zeros_delay": 86_400.0,
            "psi": 0.0123 * i if i else None,
        }

    return {
        "by": by,
        "unit": "day" if by == "time" else "512 events",
        "start": xs,
        "count": [1000 + i for i in range(n)],
        "missing": np.abs(smooth(rng, n, 0.1)).tolist(),
        "ones_delay": [7200.0 + 10 * i for i in range(n)],
        "zeros_delay": [86_400.0] * n,
        "delay_is_time": by == "time",
        "score_low": (median - 0.2).tolist(),
        "score_median": median.tolist(),
        "score_high": (median + 0.4).tolist(),
        "periods": [period(i) for i in range(4)],
    }


def segments(rng: np.random.Generator, names: list[str], down: int = 24, across: int = 3) -> dict[str, Any]:
    """Segments by hour and origin, of three methods: the raw score is off, the second too, the third is not."""
    hours, origins = [str(h) for h in range(down)], [f"origin {o}" for o in range(across)]
    listed = [("hour", [h]) for h in hours] + [("origin", [o]) for o in origins]
    listed += [("hour x origin", [h, o]) for h in hours for o in origins]
    n = len(listed)
    log_e = [*np.sort(rng.normal(6.0, 8.0, (2, n)), axis=1)[:, ::-1].tolist(), rng.normal(-1.0, 1.0, n).tolist()]
    rate = rng.uniform(0.1, 0.4, n)
    off = [0.1, 0.08, 0.0]

    def matrix(value: Any) -> list[list[Any]]:
        return [[None if (i + j) % 7 == 6 else value(i, j) for j in range(across)] for i in range(down)]

    return {
        "attributes": ["hour", "origin"],
        "least": 100,
        "rate": 0.05,
        "total": n,
        "flagged": {name: sum(e > 8.0 for e in own) for name, own in zip(names, log_e, strict=True)},
        "sentence": f"Of {n} segments with 100 events or more, 9 are shown to be miscalibrated under the raw score.",
        "spread": [
            {"column": column, "spread": spread, "points": 25.0 * spread}
            for column, spread in (("hour", 0.31), ("hour x origin", 0.12), ("origin", 0.01))
        ],
        "map": {
            "attributes": ["hour", "origin"],
            "down": hours,
            "across": origins,
            "events": matrix(lambda i, j: 100 + 10 * i + j),
            "methods": {
                name: {
                    "gap": matrix(lambda i, j, scale=scale: scale * (i - down / 2 + j / 9)),
                    "flagged": matrix(lambda i, _, scale=scale: abs(scale * (i - down / 2)) > 0.02),
                }
                for name, scale in zip(names[1:], (0.02, 0.0004), strict=True)
            },
        },
        "rows": {
            "attribute": [attribute for attribute, _ in listed],
            "value": [value for _, value in listed],
            "events": rng.integers(100, 20_000, n).tolist(),
            "rate": rate.tolist(),
            "methods": {
                name: {"said": (rate + wrong).tolist(), "log_e": own, "flagged": [e > 8.0 for e in own]}
                for name, wrong, own in zip(names, off, log_e, strict=True)
            },
        },
        "notes": ["Segments overlap; an offset is what is left when the others are accounted for."],
    }
