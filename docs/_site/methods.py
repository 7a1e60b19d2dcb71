"""A page for each preset: formula, when to use it, hyper-parameters, size, cost, guarantee, ours against the paper."""

from __future__ import annotations

import csv
import dataclasses
import tomllib
from pathlib import Path
from typing import Any

from calibeat import bounds
from calibeat.core.method import PRESETS, Method
from reproduction.published import FINAL_CE

from .pages import DOCS, table, toctree, write

FOLDER = "reference/methods"
HERE = Path(__file__).parent
FAMILIES = {
    "calibeat's own": ("auto", "gauto", "gops", "gtops"),
    "The paper's": ("ops", "tops", "hops", "obs", "tobs", "hobs"),
    "Baselines": ("bm", "fps", "fbs", "wps", "wbs", "swps", "swbs", "whb", "twhb", "f99"),
}
COST = "python -m benchmarks presets"
REPRODUCE = "python -m reproduction real-drift real-iid --runs 100"
HEAD = ["preset", "in a sentence", "numbers of state", "ns per event"]
ABOUT = """# Methods

A method is three parts and an optional guard: `Method(features, learner, calibeater, guard=None)`. A preset only picks
parts. `Calibrator(TOPS)` and `Calibrator("tops")` are the same.
[Choose a method](../../how-to/choose-method.md) helps to choose."""
SCORE_ONLY = "**No features.** The expert is the score itself: $p_t = f_t$."


def rows_of(path: Path) -> list[dict[str, str]]:
    """A CSV file."""
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def spelled(method: Method) -> str:
    """As a person would write it: parts, and only those hyper-parameters that are not the part's default."""
    words = []
    for slot in ("features", "learner", "calibeater", "guard"):
        part = getattr(method, slot)
        if part is None:
            words.append("None")
            continue
        usual = type(part)()
        other = [f for f in dataclasses.fields(part) if getattr(part, f.name) != getattr(usual, f.name)]
        words.append(f"{type(part).__name__}({', '.join(f'{f.name}={getattr(part, f.name)!r}' for f in other)})")
    while words and words[-1] == "None":
        words.pop()
    return f"Method({', '.join(words)})"


def formula(method: Method, words: dict[str, str]) -> str:
    """The parts' formulas, in the order in which an event meets them."""
    parts = [words[type(part).__name__] for part in method.parts]
    return "\n\n".join(parts if method.features is not None else [SCORE_ONLY, *parts])


def parameters(method: Method) -> str:
    """Every hyper-parameter with the preset's value."""
    rows = []
    for part in method.parts:
        page = f"[`{type(part).__name__}`](../api/{type(part).__name__}.md)"
        fields = dataclasses.fields(part)  # type: ignore[arg-type]
        own = [[page, f"`{field.name}`", f"`{getattr(part, field.name)!r}`"] for field in fields]
        rows += own or [[page, "none", ""]]
    if not rows:
        return "It has none."
    return table(["part", "hyper-parameter", "value"], rows) + "\n\nThe pages of the parts say what each one does."


def size(name: str, method: Method) -> str:
    """State and receipt, from the layout of the row."""
    text = f"One row of {method.width} float64 numbers for a stream: {8 * method.width:,} bytes. It never grows."
    if method.needs_history:
        each = 24 if method.dimension == 3 else 16
        text += f" The host also keeps past outcomes, {each} bytes each."
    if method.receipt_width:
        text += f" A receipt remembers {method.receipt_width} numbers beside the score and its cell."
    return f"{text} `calibeat.{name.upper()}.width` gives the number."


def guarantee(facts: dict[str, Any]) -> str:
    """Each bound, evaluated."""
    if not facts["guarantee"]:
        return "None is stated for it."
    rows = []
    for function, words, arguments in facts["guarantee"]:
        inside = ", ".join(f"{key}={value:,}".replace(",", "_") for key, value in arguments.items())
        rows.append([words, f"`bounds.{function}({inside})`", f"{getattr(bounds, function)(**arguments):.3g}"])
    return table(["what is promised", "call", "value"], rows)


def finals() -> dict[str, dict[str, tuple[float, float, str]]]:
    """Final CE of each method and stream: mean, standard deviation, runs."""
    found: dict[str, dict[str, tuple[float, float, str]]] = {}
    for name in ("real-drift", "real-iid"):
        for row in rows_of(DOCS / "reproduction" / f"{name}.csv"):
            if float(row["epsilon"]) == 0.1:  # rows are in the order of time: the last one of a stream stays
                values = float(row["ce_mean"]), float(row["ce_std"]), row["runs"]
                found.setdefault(row["method"], {})[row["stream"]] = values
    return found


def against_paper(name: str, ours: dict[str, tuple[float, float, str]]) -> str:
    """Final calibration errors on the paper's eight real streams."""
    if not ours:
        return f"{name.upper()} is not in the paper's experiments on real data."
    rows = []
    for stream, published in FINAL_CE.items():
        mean, std, _ = ours[stream]
        paper = published.get(name.upper())
        rows.append([stream, f"{mean:.4f} ± {std:.4f}", f"{paper / 10_000:.4f}" if paper else "–"])
    runs = next(iter(ours.values()))[2]
    words = f"Final calibration error on the paper's real streams, ours as mean ± standard deviation of {runs} runs"
    known = any(name.upper() in published for published in FINAL_CE.values())
    words += ", the paper's as the mean of the ten published runs." if known else ". The paper has no numbers for it."
    return f"{words}\n\n{table(['stream', 'ours', 'paper'], rows)}\n\nCommand: `{REPRODUCE}`"


def cost(name: str, costs: dict[str, dict[str, str]]) -> str:
    """Nanoseconds of a batch."""
    row = costs[name.upper()]
    text = f"{row['run ns']} ns of CPU time for an event in `run`, {row['times OPS']} times OPS"
    return f"{text} ({int(row['events']):,} events; two shared cores; trust the ratio). Command: `{COST}`."


def page(name: str, facts: dict[str, Any], words: dict[str, str], costs: Any, ours: Any) -> str:
    """One method."""
    method = PRESETS[name]
    parts = [
        f"# {name.upper()}",
        f"**{facts['line'][:1].upper()}{facts['line'][1:]}.**",
        f"```python\n{name.upper()} = {spelled(method)}\n```",
        "## Formula",
        formula(method, words),
        "## When to use it",
        f"**Use it if.** {facts['use']}",
        f"**Do not use it if.** {facts['avoid']}",
        "## Hyper-parameters",
        parameters(method),
        "## State size",
        size(name, method),
        "## Cost",
        cost(name, costs),
        "## Guarantee",
        guarantee(facts),
        "## Ours against the paper",
        against_paper(name, ours.get(name.upper(), {})),
        facts.get("more", ""),
    ]
    return "\n\n".join(part for part in parts if part)


def generate() -> None:
    """All pages, and the table of them."""
    with (HERE / "methods.toml").open("rb") as file:
        facts = tomllib.load(file)
    words = facts.pop("parts")
    if set(facts) != set(PRESETS):
        raise ValueError(f"methods.toml must describe every preset, got {set(facts) ^ set(PRESETS)} on one side only")
    costs = {row["preset"]: row for row in rows_of(HERE / "cost.csv")}
    ours = finals()
    parts = [ABOUT]
    for family, names in FAMILIES.items():
        rows = []
        for name in names:
            write(f"{FOLDER}/{name}.md", page(name, facts[name], words, costs, ours))
            width, nanoseconds = str(PRESETS[name].width), costs[name.upper()]["run ns"]
            rows.append([f"[{name.upper()}]({name}.md)", facts[name]["line"], width, nanoseconds])
        parts += [f"## {family}", table(HEAD, rows), toctree(list(names), "hidden")]
    parts.append(f"State sizes come from the methods themselves, times from `{COST}`.")
    write(f"{FOLDER}/index.md", "\n\n".join(parts))
