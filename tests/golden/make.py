"""Cut the golden vectors of this folder from the larger set: python tests/golden/make.py FOLDER

FOLDER holds the larger set: `golden/open` (streams and scores), `auto/golden*_open.npz`, `groups/golden*_open.npz`,
`weights/golden_open.npz`, `several/golden_open.npz`, `streams/dev.npz` and `paper/*.tex`. The README beside this script
says what the files hold.
Nothing is computed here: every number is copied from the larger set. Running the script again gives the same arrays.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).parent
LONGEST = {  # streams of which only the beginning is kept: so many events, which is a point of the metrics' grid
    "adv_alternating_20k": 3000,
    "rand_50k": 5000,
    "real_bank_drift_seed0": 4000,
    "real_credit_iid_seed0": 4000,
    "real_churn_iid_seed0": 3000,
}
THIN = 1500  # streams with more events keep outputs at the first and last 100 events and at every 8th
WHOLE = re.compile(r"scores|y|ops_p|obs_p|ho[pb]s\d+(_u)?|bin10_ops|whb_p|x_stream|prob_stream")
DROPPED = re.compile(r"whb_u(_sizes)?|tops\d+_final_\w+")  # large, or true of the whole stream only; no test reads them
TABLES = re.compile(r"n?_?w[pb]s_par")  # rows [event, parameters]
METRICS = re.compile(r"(ce|shp)\d*_\w+")
SCORES = ("fetal_drift", "credit_iid", "churn_iid", "bank_drift")

Arrays = dict[str, np.ndarray[Any, Any]]


def cut(stream: Arrays, longest: int) -> Arrays:
    """The first events of a stream, and its outputs at fewer of them. All recursions are causal."""
    total = len(stream["y"])
    n = min(total, longest)
    first = int(stream["n_val"]) if "n_val" in stream else 0
    at = np.arange(n)
    keep = (at < 100) | (at >= n - 100) | (at % 8 == 0) if n > THIN else at >= 0
    idx = np.intersect1d(stream["idx"], at[keep])
    made = {}
    for name, values in stream.items():
        if DROPPED.fullmatch(name):
            continue
        if name == "idx":
            made[name] = idx
        elif name == "eval_n":
            made[name] = values[values <= n]
        elif METRICS.fullmatch(name):
            made[name] = values[stream["eval_n"] <= n]
        elif TABLES.fullmatch(name):
            made[name] = values[values[:, 0] <= n]
        elif values.ndim and (begin := begins(name, values, stream, first)) is not None:
            places = np.arange(begin, total) if len(values) == total - begin else stream["idx"][stream["idx"] >= begin]
            wanted = places < n if WHOLE.fullmatch(name) else np.isin(places, idx)
            made[name] = values[wanted]
        else:
            made[name] = values  # a single number, or the training batch
    return made


def begins(name: str, values: np.ndarray[Any, Any], stream: Arrays, first: int) -> int | None:
    """The event at which an array with one value an event begins; None for other arrays."""
    if name.endswith("_train") or name in ("table", "fps_ab", "fbs_abc"):
        return None
    total, idx = len(stream["y"]), stream["idx"]
    for begin in (0, first):
        if len(values) in (total - begin, int((idx >= begin).sum())):
            return begin
    raise ValueError(f"{name} has {len(values)} values of {total} events")


def thin_auto(arrays: Arrays) -> Arrays:
    """AUTO's vectors: all events and the final rows; forecasts of long streams at the events `NAME/idx`."""
    made = dict(arrays)
    for name in sorted({key.split("/")[0] for key in arrays}):
        n = len(arrays[f"{name}/score"])
        at = np.arange(n)
        made[f"{name}/idx"] = at[(at < 100) | (at >= n - 100) | (at % 8 == 0) | (n <= THIN)]
        for output in ("forecast", "expert"):
            made[f"{name}/{output}"] = arrays[f"{name}/{output}"][made[f"{name}/idx"]]
    return made


def join_groups(at_once: Arrays, late: Arrays) -> Arrays:
    """The groups' vectors; of cases that are in `late` too, only the values of attributes are those of `at_once`."""
    renewed = {key.partition("/")[0] for key in late}
    kept = {
        key: values
        for key, values in at_once.items()
        if key.partition("/")[0] not in renewed or key.partition("/")[2] == "values"
    }
    return {**kept, **late}


# ---- the paper: what the tests ask of its text, without the text ---------------------------------------------------


def plain(tex: str) -> str:
    """The words of a LaTeX text as the claims write them."""
    tex = re.sub(r"(?m)(?<!\\)%.*$", "", tex)
    for macro, letters in {r"\ce~": "CE ", r"\shp~": "SHP ", r"\emph": "", r"\widetilde": "", "Õ": "O"}.items():
        tex = tex.replace(macro, letters)
    return " ".join(re.sub(r"[${}\\~]", "", tex).split())


def quoted_parts(text: str) -> list[str]:
    """The parts of a quotation between its [...], as they are compared."""
    return [plain(part).strip(" ,") for part in text.split("[...]")]


def digest(part: str) -> str:
    """A checksum of some words of the paper."""
    return hashlib.sha256(part.encode()).hexdigest()[:16]


def facts(tex: str, claims: list[str]) -> dict[str, Any]:
    """Numbered figures and tables with their labels, the printed numbers, and checksums of the words that we quote."""
    floats, count = [], {"figure": 0, "table": 0}
    for kind, body in re.findall(r"\\begin\{(figure|table)\*?\}(.*?)\\end\{\1\*?\}", tex, flags=re.DOTALL):
        count[kind] += 1
        floats.append([f"{kind.capitalize()} {count[kind]}", re.findall(r"\\label\{(.*?)\}", body)])
    text = plain(tex)
    return {
        "floats": floats,
        "section1": re.findall(r"(?:Base|OPS) & +(\d+\.\d+)\\% & +(\d*\.\d+)", tex),
        "quoted": sorted({digest(part) for claim in claims for part in quoted_parts(claim) if part in text}),
    }


def save(path: Path, arrays: Arrays) -> None:
    np.savez_compressed(path, allow_pickle=False, **arrays)


def load(path: Path) -> Arrays:
    with np.load(path) as file:
        return dict(file)


def main(source: Path) -> None:
    for folder in ("streams", "scores"):
        (HERE / folder).mkdir(exist_ok=True)
    for path in sorted((source / "golden" / "open").glob("*.npz")):
        stream = load(path)
        small = stream if path.stem == "projection" else cut(stream, LONGEST.get(path.stem, len(stream["y"])))
        save(HERE / "streams" / path.name, small)
    for name in SCORES:
        save(HERE / "scores" / f"{name}_seed0.npz", load(source / "golden" / "open" / "scores" / f"{name}_seed0.npz"))
    save(HERE / "auto.npz", thin_auto(load(source / "auto" / "golden_open.npz")))
    save(HERE / "auto_late.npz", thin_auto(load(source / "auto" / "golden_late2_open.npz")))
    groups = source / "groups"
    save(HERE / "groups.npz", join_groups(load(groups / "golden_open.npz"), load(groups / "golden_late2_open.npz")))
    save(HERE / "weights.npz", load(source / "weights" / "golden_open.npz"))
    save(HERE / "several.npz", load(source / "several" / "golden_open.npz"))
    development = load(source / "streams" / "dev.npz")
    save(HERE / "abrupt.npz", {name: development[f"own_abrupt/0/{name}"] for name in ("score", "outcome")})
    tex = "".join(path.read_text() for path in sorted((source / "paper").glob("*.tex")))
    root = HERE.parents[1]
    page = (root / "docs" / "reproduction.md").read_text()
    claims = re.findall(r"^\| “(.*?)” \(", page, flags=re.MULTILINE)
    (HERE / "paper.json").write_text(json.dumps(facts(tex, claims), indent=1) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
