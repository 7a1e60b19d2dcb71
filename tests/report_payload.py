"""Payloads for the report: a year that drifts, as a backtest would tell it, and the odd shapes that a log can have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from report_parts import (
    START,
    decisions,
    history,
    key_table,
    number,
    paging,
    reliability,
    segments,
    smooth,
    stamps,
    trajectory,
)

NAMES = ("raw", "auto", "ops", "tops", "hops", "obs", "tobs", "wps", "swps", "whb")
HOSTILE = '</script><script>document.title="broken"</script><!--<img src=x onerror=alert(1)>&amp;"\''


def payload(
    methods: int = 10, windows: int = 48, keys: int = 400, *, time: bool = True, periods: int = 12, seed: int = 0
) -> dict[str, Any]:
    """A flights-like year: the raw score drifts away, OPS follows slowly, AUTO well."""
    rng = np.random.default_rng(seed)
    names = NAMES[:methods]
    by = "time" if time else "event"
    judged = 308_772
    quality = {name: 0.055 if name == "raw" else 0.008 + 0.004 * i for i, name in enumerate(names)}
    loss = {name: 0.532 if name == "raw" else 0.4712 + 0.0035 * i for i, name in enumerate(names)}
    best = min(loss, key=loss.__getitem__)

    def triple(difference: float) -> list[float]:
        wide = abs(difference) * 0.35 + 0.0006
        return [number(difference), number(difference - wide), number(difference + wide)]

    def against(name: str, other: str) -> dict[str, Any]:
        d = loss[name] - loss[other]
        return {"log_loss": triple(d), "brier": triple(d * 0.4), "ce": triple(quality[name] - quality[other])}

    def row(name: str) -> dict[str, Any]:
        other = min((n for n in names if n != name), key=loss.__getitem__, default=None)
        return {
            "method": name,
            "log_loss": loss[name],
            "brier": loss[name] * 0.31,
            "ce": quality[name],
            "ce_luck": 0.0011,
            "shp": 0.081 - quality[name] / 10,
            "refinement": 0.1417 + quality[name] / 50,
            "accuracy": 0.784 - quality[name] / 9,
            "auc": 0.701 if name != "raw" else 0.688,
            "vs_raw": None if name == "raw" else against(name, "raw"),
            "vs_best_other": None
            if other is None
            else {"method": other, **against(name, other), "ce": [quality[name] - quality[other], None, None]},
            "elsewhere": None
            if name == "raw"
            else {"low": -0.2, "high": 0.1, "outlived": False, "eighths": [loss[name] - loss["raw"]] * 8},
            "regret": None if name in ("raw", "whb") else -1012.5 - 900 * quality[name],
            "log_e_value": 0.0 if name == "raw" else judged * (loss["raw"] - loss[name]),
            "log_e_max": 0.0 if name == "raw" else judged * (loss["raw"] - loss[name]) + 3,
        }

    season = 0.03 * np.sin(np.linspace(0, 7, windows)) + 0.02
    rate = np.clip(0.22 + season + smooth(rng, windows, 0.05), 0.02, 0.9)
    series = {}
    for name in names:
        ce = np.abs(quality[name] + smooth(rng, windows, quality[name]) + rng.normal(0, 0.003, windows)) + 0.002
        ll = loss[name] + season + smooth(rng, windows, 0.03)
        series[name] = {"ce": ce.tolist(), "log_loss": ll.tolist(), "brier": (0.31 * ll).tolist()}
    edges = stamps(windows + 1) if time else [int(judged * i / windows) for i in range(windows + 1)]
    points = 300 if windows > 20 else windows
    xs = stamps(points) if time else [int(judged * i / points) for i in range(points)]
    grown = {
        n: ((loss["raw"] - loss[n]) * judged * np.linspace(0, 1, points) ** 1.4 + smooth(rng, points, 900))
        for n in names
    }
    return {
        "schema": 1,
        "title": "flights-2013.parquet",
        "command": "calibeat backtest flights-2013.parquet --outcome late --time departs --key carrier --report r.html",
        "versions": {"calibeat": "0.4.0", "python": "3.11.9", "numpy": "2.4.6"},
        "data": {
            "source": ["flights-2013.parquet"],
            "rows": 316_803,
            "used": 309_772,
            "warmup": 1000,
            "judged": judged,
            "base_rate": 0.2354,
            "mean_score": 0.2891,
            "span": [START.isoformat(), stamps(2)[1]],
            "skipped": [{"reason": "outcome is missing", "count": 7031, "first": "row 412 of flights-2013.parquet"}],
            "columns": {"score": {"name": "p", "guessed": True}, "outcome": {"name": "late", "guessed": False}},
            "keys": keys or None,
            "score_kind": "probability",
            "notes": ["Outcomes never arrived for 12 events."],
        },
        "verdict": {
            "method": best,
            "headline": f"Use {best.upper()}: it cuts the calibration error from 5.5 % to 1.2 %."
            if best != "raw"
            else "Keep the raw score.",
            "caveats": [f"But where {best.upper()} says 70 % or more (221 events, 80 % on average), 24 % happened."],
            "sentences": [
                "Every 1,000 forecasts it saves 57 nats of log-loss against the raw score (95 % interval 41 to 73).",
                "The raw score has been too high since April; the correction kept pace with every change of season.",
            ],
            "confidence": "sure",
        },
        "methods": [
            {
                "name": n,
                "label": "raw" if n == "raw" else n.upper(),
                "about": f"What {n} does, in one sentence.",
                "seconds": 0.0146 + 0.0031 * i,
            }
            for i, n in enumerate(names)
        ],
        "table": [row(name) for name in names],
        "intervals": {
            "quantile_of_best": 2.31,
            "run_events": 176,
            "legend": "A bar shows the difference to the raw score with its 95 % interval: left of the line is better.",
            "sentence": "95 % of such intervals hold the difference that these forecasts had in expectation.",
        },
        "bootstrap": {
            "blocks": 68,
            "block_length": 4541,
            "resamples": 2000,
            "sentence": "A moving-block bootstrap with 2,000 resamples and blocks of 4,541 events is the check.",
        },
        "windows": {
            "by": by,
            "start": edges[:-1],
            "end": edges[1:],
            "count": [judged // windows] * windows,
            "base_rate": rate.tolist(),
            "mean_score": (rate + 0.05 + smooth(rng, windows, 0.02)).tolist(),
            "methods": series,
        },
        "reliability": reliability(rng, names, periods, quality),
        "trajectories": {
            "by": by,
            "x": xs,
            "methods": {name: trajectory(rng, name, points) for name in names if name not in ("raw", "whb")},
        },
        "keys": key_table(rng, names, keys, loss) if keys else None,
        "delay": {
            "ages": None,
            "unit": "time",
            "quantiles": {"50%": 11_400, "90%": 21_000, "99%": 41_000, "max": 91_000},
            "events_quantiles": {"50%": 176, "90%": 331, "99%": 502, "max": 1110},
            "never": 7031,
            "too_late": 214,
            "histogram": {
                "edges": [3600.0 * i for i in range(13)],
                "count": [12, 31_000, 78_000, 92_000, 50_000, 31_000, 14_000, 6_000, 3000, 1500, 700, 200],
            },
            "sentence": "Half of the outcomes were known 3.2 hours after the forecast.",
            "immediate": {n: {"log_loss": loss[n] - 0.0004, "ce": quality[n] - 0.0003} for n in names},
        },
        "certificates": [
            {
                "method": n,
                "what": "regret",
                "statement": "The log-loss is at most this much above that of the best fixed parameters.",
                "bound": 7421.5,
                "observed": 12.5 + 900 * quality[n],
                "holds": n != "hops",
                "promised": n == "tops",
                "in_expectation": False,
                "applies": "to any log, with outcomes told at once"
                if n == "tops"
                else "This is a yardstick: the theorem wants another step size.",
            }
            for n in names
            if n in ("ops", "tops", "hops")
        ],
        "evalue": {
            "by": by,
            "x": xs,
            "threshold": float(np.log(20 * max(1, len(names) - 1))),
            "methods": {name: grown[name].tolist() for name in names},
        },
        "created": "2026-11-16T08:15:02+00:00",
        "answer": {
            "happened": [
                {"method": n, "count": 21_000 + i, "forecast": 0.3412 + i / 100, "outcome": (0.2104, 0.3498)[i]}
                for i, n in enumerate(("raw", best))
                if best != "raw"
            ],
            "sure": "We are sure: the gain is beyond luck on this log (95 %).",
            "library": ["from calibeat import Calibrator", "", f'cal = Calibrator("{best}")'],
            "service": None if best == "raw" else [f"calibeat serve --store calibeat.db --method {best}"],
            "note": "" if best == "raw" else "Hold each outcome back until it is 7d old.",
        },
        "decisions": decisions(names, xs, by, judged),
        "history": history(rng, xs, by),
        "paging": paging(rng, names, xs, by),
    }


def nothing(value: Any) -> Any:
    """The same shape with every float unknown."""
    if isinstance(value, float):
        return None
    if isinstance(value, dict):
        return {key: nothing(item) for key, item in value.items()}
    return [nothing(item) for item in value] if isinstance(value, list) else value


def unknown() -> dict[str, Any]:
    told = payload(methods=3, windows=6, keys=3)
    gone = {name: nothing(part) if name not in ("delay", "verdict", "answer") else part for name, part in told.items()}
    gone["paging"].update(arl=1e6, methods={n: nothing(m) for n, m in told["paging"]["methods"].items()})
    for watched in gone["paging"]["methods"].values():
        watched["shown"] = []
    gone["decisions"] = {**told["decisions"], "curve": nothing(told["decisions"]["curve"])}
    gone["decisions"]["curve"]["threshold"] = told["decisions"]["curve"]["threshold"]
    gone["reliability"]["mass"] = {}
    gone["keys"]["differ"] = None
    gone["evalue"]["threshold"] = told["evalue"]["threshold"]  # known before the first event
    return gone


def from_python() -> dict[str, Any]:
    told = payload(methods=3, keys=0, time=False)
    told["command"] = None
    told["decisions"].update(costs=None, actions=[], over_time=None, sentence="")
    told["data"].update(span=None, skipped=[], source=[], columns={}, notes=[], score_kind="logit")
    told["delay"] = None
    return told


def without_delay() -> dict[str, Any]:
    told = {**payload(methods=3), "delay": None}
    told["history"].update(ones_delay=None, zeros_delay=None, missing=[0.0] * len(told["history"]["start"]))
    return told


def one_window() -> dict[str, Any]:
    return payload(methods=3, windows=1, keys=1, periods=0)


def delay_in_events() -> dict[str, Any]:
    told = payload(methods=2, time=False)
    told["delay"].update(
        unit="events", quantiles=told["delay"]["events_quantiles"], events_quantiles={}, immediate=None
    )
    return told


def calibrated() -> dict[str, Any]:
    """A raw score that needs no help: the evidence stays near its line."""
    told = payload(methods=10, keys=0)
    for name, path in told["evalue"]["methods"].items():
        told["evalue"]["methods"][name] = [value / 4000 for value in path]
    return told


def one_of_each() -> dict[str, Any]:
    """What a sentence must not call many: one event, one outcome, one day."""
    told = payload(methods=2, windows=1, keys=1, periods=1)
    told["data"].update(rows=2, used=2, warmup=1, judged=1, score_kind="percent")
    told["reliability"]["periods"][0]["count"] = 1
    told["delay"].update(never=1, too_late=1, quantiles={"50%": 86400.0}, events_quantiles={"50%": 1.0})
    told["delay"]["histogram"] = {"edges": [0.0, 86400.0, 172800.0], "count": [1, 2]}
    return told


def extreme() -> dict[str, Any]:
    """Numbers as large and as small as they come, and one method that is hopeless."""
    told = payload(methods=5, windows=30, keys=30)
    told["table"][1]["log_loss"] = 1e-12
    told["table"][2]["vs_raw"]["log_loss"] = [700.0, 600.0, 800.0]
    told["table"][3]["vs_raw"]["log_loss"] = [1e-9, -1e-9, 3e-9]
    told["windows"]["methods"]["ops"]["ce"] = [1e-9 * i for i in range(30)]
    told["windows"]["methods"]["tops"]["log_loss"] = [1e12 * i for i in range(30)]
    told["evalue"]["methods"]["ops"] = [-1e9 * i for i in range(300)]
    told["keys"]["rows"][0]["key"] = "a very long key " * 20
    told["keys"]["rows"][1]["key"] = "x" * 400
    told["keys"]["rows"][2]["key"] = ""
    told["title"] = "y" * 300
    told["data"]["rows"] = 10**12
    return told


def hostile() -> dict[str, Any]:
    told = payload(methods=3, windows=5, keys=5)
    told["title"] = told["command"] = told["verdict"]["headline"] = told["keys"]["rows"][0]["key"] = HOSTILE
    told["methods"][1]["label"] = told["methods"][1]["about"] = HOSTILE
    told["data"].update(source=[HOSTILE], notes=[HOSTILE], columns={HOSTILE: {"name": HOSTILE, "guessed": True}})
    told["data"]["skipped"] = [{"reason": HOSTILE, "count": 1, "first": HOSTILE}]
    told["reliability"]["periods"][1]["label"] = HOSTILE
    told["trajectories"]["methods"]["auto"]["lanes"] = {HOSTILE: told["evalue"]["methods"]["auto"]}
    told["certificates"][0]["statement"] = HOSTILE
    told["keys"]["differ"]["rows"][0]["key"] = HOSTILE
    told["decisions"]["sentence"] = told["history"]["periods"][0]["label"] = HOSTILE
    told["verdict"]["caveats"] = [HOSTILE]
    told["answer"].update(sure=HOSTILE, library=[HOSTILE], service=[HOSTILE], note=HOSTILE)
    told["paging"]["sentence"] = told["paging"]["methods"]["raw"]["shown"][0]["what"] = HOSTILE
    return told


def with_groups(down: int = 24, across: int = 3) -> dict[str, Any]:
    told = payload(methods=3, windows=6, keys=0)
    told["segments"] = segments(np.random.default_rng(1), [method["name"] for method in told["methods"]], down, across)
    return told


def one_attribute() -> dict[str, Any]:
    """No pairs, so no map; and nothing that is called miscalibrated."""
    told = with_groups(4, 0)
    told["segments"].update(attributes=["hour"], map=None, notes=[], total=4)
    return told


def hostile_groups() -> dict[str, Any]:
    told = with_groups(3, 2)
    found = told["segments"]
    found["attributes"][0] = found["map"]["attributes"][0] = found["map"]["across"][0] = found["map"]["down"][0] = (
        HOSTILE
    )
    found["rows"]["attribute"][0] = found["spread"][0]["column"] = HOSTILE
    found["rows"]["value"][0] = [HOSTILE]
    return told


def offered() -> dict[str, Any]:
    told = payload(methods=2, windows=2, keys=0)
    told["offered"] = {"columns": ["country"], "sentence": "Segments can be judged: country (say --groups country)."}
    return told


def with_later() -> dict[str, Any]:
    """A log that does not say when outcomes were known."""
    told = without_delay()
    rows = [("at once", 0.158), ("100 events late", 0.03), ("a day late", -0.012)]
    told["later"] = {
        "method": told["verdict"]["method"],
        "events": 200_000,
        "whole": False,
        "raw_log_loss": 0.532,
        "rows": [{"delay": delay, "log_loss": 0.532 * (1 - gain), "gain": gain} for delay, gain in rows],
        "sentence": "This assumes that each outcome is known before the next score.",
    }
    return told


def never_paged() -> dict[str, Any]:
    """A log so short that the monitors have hardly begun."""
    told = payload(methods=2, windows=2, keys=0)
    for watched in told["paging"]["methods"].values():
        watched.update(alarms=0, pages=0, shown=[], x=[], level=[], gains=[])
    return told


VARIANTS: dict[str, Callable[[], dict[str, Any]]] = {
    "a year": payload,
    "one method": lambda: payload(methods=1),
    "two methods": lambda: payload(methods=2, windows=2),
    "no keys": lambda: payload(methods=3, keys=0),
    "no delay": without_delay,
    "by events": lambda: payload(methods=4, time=False),
    "one window": one_window,
    "all unknown": unknown,
    "from Python": from_python,
    "delay in events": delay_in_events,
    "calibrated": calibrated,
    "one of each": one_of_each,
    "extreme": extreme,
    "hostile": hostile,
    "never paged": never_paged,
    "later": with_later,
    "groups": with_groups,
    "many groups": lambda: with_groups(20, 20),
    "one attribute": one_attribute,
    "hostile groups": hostile_groups,
    "groups offered": offered,
    "200 windows": lambda: payload(windows=200, keys=2000),
}
