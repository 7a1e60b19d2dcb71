"""`python -m benchmarks [--quick] [name ...]` from the root of the repository prints all the tables or those named."""

from __future__ import annotations

import argparse
import importlib
import sys
from typing import Protocol


class Table(Protocol):
    """A function that measures and prints one table."""

    def __call__(self, *, quick: bool) -> None:
        """Measure and print."""


# Name -> module:function, imported when its turn comes: a library that is missing costs only the tables that need it.
TABLES = {
    "floor": "speed:against_floor",
    "peers": "speed:against_peers",
    "events": "speed:by_event",
    "before": "before:compare",
    "before-hosts": "before:hosts",
    "presets": "presets:cost",
    "refit": "refit:growth",
    "memory": "memory:growth",
    "compiled": "compiled:compiled",
    "rebuild": "rebuild:rebuild",
    "parts": "parts:parts",
    "auto": "auto:cost",
    "march": "auto:march",
    "quality": "quality:quality",
    "late": "late:late",
    "sampled": "sampled:sampled",
    "several-quality": "several_quality:quality",
    "band": "band:band",
    "weights": "weights:cost",
    "band-cost": "band_cost:cost",
    "bank": "bank:millions",
    "threads": "bank:threads",
    "strings": "bank:strings",
    "files": "bank:files",
    "new-keys": "bank:new_keys",
    "lean": "bank:lean",
    "ten-millions": "bank:ten_millions",
    "fold": "fold:fold",
    "receipts": "receipts:columns",
    "growth": "fold:lock_and_growth",
    "prefetch": "fold:prefetch",
    "prior": "prior:cold_start",
    "backtest": "backtest:end_to_end",
    "backtest-goals": "backtest:goals",
    "backtest-parts": "backtest_parts:parts",
    "coverage": "coverage:coverage",
    "walks": "walks:walks",
    "guard": "guard:guard",
    "groups": "groups:cost",
    "groups-quality": "groups:quality",
    "groups-rivals": "groups:rivals",
    "several": "several:cost",
    "multi": "multi:cost",
    "multi-floor": "multi:against_c",
    "multi-single": "multi:single",
    "multi-stress": "multi:stress",
    "multi-backtest": "multi_backtest:backtest",
    "multi-quality": "multi_quality:quality",
    "sklearn": "sklearn_fit:fit_once",
    "sklearn-others": "sklearn_fit:others",
    "sklearn-drift": "sklearn_fit:drift",
    "sklearn-classes": "sklearn_fit:many_classes",
    "monitor": "monitor:monitor",
    "monitor-sampled": "monitor:sampled",
    "notice": "notice:notice",
    "notice-service": "notice:in_service",
    "dashboard": "dashboard:opening",
    "lists": "dashboard:lists",
    "kill": "kill:kill",
    "serve": "serve:throughput",
    "corrections": "corrections:corrections",
    "serve-before": "serve_before:compare",
    "serve-memory": "serve_memory:memory",
    "soak": "serve:soak",
    "batches": "batches:parts",
    "service-growth": "batches:growth",
    "spark": "spark:scale",
    "spark-bucket": "spark_bucket:cost",
    "spark-state": "spark_state:layouts",
    "spark-check": "spark_check:check",
    "spark-kill": "spark_kill:kills",
    "abandoned": "serve:abandoned",
}
LONG = {"kill", "soak", "spark-kill", "ten-millions"}  # take an hour or 6 GB of memory: only when they are named


def main() -> None:
    """Run the named benchmarks in the order of the list."""
    parser = argparse.ArgumentParser(
        prog="benchmarks", description="Measure calibeat; trust ratios, not absolute times."
    )
    parser.add_argument("names", nargs="*", metavar="name", help=", ".join(TABLES))
    parser.add_argument("--quick", action="store_true", help="fewer events and repeats")
    arguments = parser.parse_args()
    if unknown := set(arguments.names) - set(TABLES):
        parser.error(f"name must be one of {', '.join(TABLES)}, got {', '.join(sorted(unknown))}")
    for name, place in TABLES.items():
        if name in arguments.names or not (arguments.names or name in LONG):
            module, function = place.split(":")
            try:
                measure: Table = getattr(importlib.import_module(f"benchmarks.{module}"), function)
            except ModuleNotFoundError as missing:
                sys.stdout.write(
                    f"{name}: left out, {missing.name} is not installed (the extra is calibeat[bench])\n\n"
                )
                continue
            measure(quick=arguments.quick)


if __name__ == "__main__":
    main()
