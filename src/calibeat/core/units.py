"""The extension modules, or units, that the kernels are compiled into: an edit compiles only the units that it touches.

A unit has the entries of its modules, and a copy of each kernel that they call, so that calls can be inlined.
docs/compiled.md says what that saves.
"""

from __future__ import annotations

# A unit -> modules, or folders of them, whose entries are there. The entries of all others are in `_compiled`.
UNITS: dict[str, tuple[str, ...]] = {
    "_compiled": (),
    "_compiled_loops": ("core.loops", "core.vector", "core.groups", "core.several", "hosts"),
    "_compiled_judges": ("monitor", "backtest"),
}


def unit_of(module: str) -> str:
    """The unit that has the entries of a module, such as "calibeat.core.loops"."""
    name = module.partition(".")[2]
    for unit, places in UNITS.items():
        if any(name == place or name.startswith(f"{place}.") for place in places):
            return unit
    return "_compiled"
