"""Faults under load: services on SQLite that are killed, and two services on one PostgreSQL that are killed, stopped,
cut off from it, or lose it by a kill. The load and the verdict are those of the tests (tests/faults.py and kills.py),
with more faults.

Clients send batches of forecasts, and late, doubled and contradicting outcomes, for streams of two classes, of three
and with groups. In half of the streams they also correct and retract outcomes, forget events, freeze, resume, pass
through and reset. They hang up before some answers, send again what was not answered, and remember what they were told.
At the end the store must hold all of it and nothing that was forgotten, its state must be that of a replay, bit for
bit, and each forecast of the other half that of the library in the order of the log. "unwritten" are the kills after
which the log had operations that were in no other table yet; there are more where clients only send events, because
corrections are applied from the tables.

``python -m benchmarks.kill --kills 200 --faults 60`` says how many; ``python -m benchmarks kill`` does as many as this.
"""

from __future__ import annotations

import argparse
import importlib
import sys
import tempfile
import time
from itertools import cycle, islice
from pathlib import Path
from typing import Any

from benchmarks import table

METHODS = ("tops", "auto", "hops", "gauto")  # all of them watched by monitors
SHAPES = {
    "auto": ("", "k", "g"),
    "gauto": ("", "k", "g"),
}  # groups need AUTO's lanes; others have two and three classes
MOST = (5, 50)  # events in a request: small ones for every other method, large ones for the rest
KILLS, FAULTS = 200, 60
SQLITE, PLAIN, POSTGRES = "SQLite", "SQLite, events only", "PostgreSQL, 2 services"
HEAD = (
    *(
        "store",
        "method",
        "batch",
        "faults",
        "s each",
        "unwritten",
        "forecasts",
        "outcomes",
        "repeats",
        "sent again",
        "hung up",
    ),
    *(
        "corrected",
        "forgotten",
        "other verbs",
        "lost",
        "doubled",
        "changed",
        "not as the library",
        "streams that differ",
    ),
)


def kill(*, quick: bool) -> None:
    """Print one row for each store and method; every column from "lost" on must be 0."""
    run(20 if quick else KILLS, 8 if quick else FAULTS)


def run(kills: int, faults: int, methods: tuple[str, ...] = METHODS, seed: int = 0) -> bool:
    """So many kills on SQLite and so many faults on PostgreSQL, divided among the methods -> whether all was well."""
    sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
    harness, checks, postgres = (importlib.import_module(name) for name in ("faults", "kills", "postgres"))
    rows: list[list[str]] = []
    well = True
    server: Any = postgres.start() if faults else None
    with tempfile.TemporaryDirectory() as folder, Path(folder, "log").open("w+") as log:
        nursery = harness.Nursery(log)
        try:
            for at, method in enumerate(methods):
                for name, total in ((SQLITE, kills - kills // 2), (PLAIN, kills // 2), (POSTGRES, faults)):
                    count = total // len(methods) + (at < total % len(methods))
                    if not count:
                        continue
                    on_sqlite = name != POSTGRES
                    url = f"{folder}/{method}{name}.db" if on_sqlite else server.database()
                    kinds = ["service killed"] if on_sqlite else list(harness.FAULTS)
                    options: dict[str, Any] = {} if on_sqlite else {"services": 2, "server": server}
                    most, began = MOST[at % 2], time.monotonic()
                    todo = list(islice(cycle(kinds), at, at + count))
                    options |= {"shapes": SHAPES.get(method, ("", "k")), "verbs": name != PLAIN}
                    load = harness.run(nursery, url, method, todo, most=most, seed=seed + at, **options)
                    seconds = (time.monotonic() - began) / count
                    found = checks.compare(load.clients, url)
                    sentences = [*found["wrong"], *found["differences"], *found["problems"]]
                    for sentence in sentences[:20]:
                        sys.stdout.write(f"{name}, {method}: {sentence}\n")
                    well &= not sentences and not any(found[each] for each in ("lost", "doubled", "changed", "differ"))
                    rows.append(_row(name, method, most, count, seconds, load.numbers, found))
                    sys.stderr.write(f"{name}, {method}: {count} faults, {found['lost']} lost, {seconds:.1f} s each\n")
        finally:
            nursery.close()
            if server is not None:
                server.close()
        if not well:
            log.seek(0)
            sys.stdout.writelines(log.readlines()[-50:])
    table.show("Faults at random moments under load", HEAD, rows)
    return well


def _row(name: str, method: str, most: int, count: int, seconds: float, sent: Any, found: Any) -> list[str]:
    counted = [found[each] for each in ("unwritten", "forecasts", "outcomes", "repeats")]
    counted += [sent[each] for each in ("sent again", "hung up")]
    counted += [found["corrected"], found["forgotten"], found["controls"] - found["forgotten"]]
    counted += [found[each] for each in ("lost", "doubled", "changed", "differ")]
    numbers = [f"{number:,}" for number in counted]
    differ = f"{len(found['differences'])} of {found['streams']}"
    return [name, method.upper(), f"1 to {most}", str(count), f"{seconds:.1f}", *numbers, differ]


def main() -> int:
    """How many faults, and of which methods -> 1 if anything was lost or differs."""
    parser = argparse.ArgumentParser(prog="benchmarks.kill", description=__doc__)
    parser.add_argument("--kills", type=int, default=KILLS, help="of services on SQLite (%(default)s)")
    parser.add_argument("--faults", type=int, default=FAULTS, help="of two services on PostgreSQL (%(default)s)")
    parser.add_argument("--methods", default=",".join(METHODS), help="between commas (%(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of the clients and the moments (%(default)s)")
    chosen = parser.parse_args()
    return int(not run(chosen.kills, chosen.faults, tuple(chosen.methods.split(",")), chosen.seed))


if __name__ == "__main__":
    sys.exit(main())
