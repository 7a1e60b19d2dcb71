"""Reference pages of every public name, from the package itself."""

from __future__ import annotations

import importlib
import inspect
import types
from collections.abc import Callable

import calibeat
from calibeat.core.presets import PRESETS
from calibeat.errors import CalibeatError

from .pages import table, toctree, write

FOLDER = "reference/api"
GROUPS: dict[str, tuple[str, ...]] = {
    "Hosts": ("Calibrator", "Forecast", "Bank", "MultiCalibrator", "MultiForecast", "MultiBank", "Monitor"),
    "Methods and their parts": (
        "Method", "Platt", "Beta", "Temperature", "ONS", "OGD", "AIOLI", "Lanes", "Fixed", "FTL", "Histogram", "Tracking",
        "Hedging", "Spline", "Guard",
    ),
    "Functions": ("backtest", "BacktestResult", "warm_up"),
    "Modules of numbers": ("metrics", "bounds", "late"),
}  # fmt: skip
# Adapters and packages behind an extra; one that is not there is left out.
PACKAGES = {
    "calibeat.sklearn": "sklearn",
    "calibeat.river": "river",
    "calibeat.plot": "plot",
    "calibeat.export": "",
    "calibeat.client": "client",
    "calibeat.service": "service",
    "calibeat.spark": "spark",
}
MEMBERS = ":members:\n   :inherited-members:\n   :member-order: bysource"


def first_line(thing: object) -> str:
    return (inspect.getdoc(thing) or "").split("\n")[0].rstrip(".")


def is_preset(name: str) -> bool:
    return name.lower() in PRESETS


def page(name: str, dotted: str, thing: object) -> str:
    """The page of a class, a function or a module of functions."""
    if isinstance(thing, types.ModuleType):
        body = f".. automodule:: {dotted}\n   :members:\n   :member-order: bysource"
        if hasattr(thing, "__all__"):
            body += "\n   :imported-members:"
    elif inspect.isclass(thing):
        body = f".. autoclass:: {dotted}\n   {MEMBERS}"
    else:
        body = f".. autofunction:: {dotted}"
    return write(f"{FOLDER}/{name}.md", f"# {name}\n\n```{{eval-rst}}\n{body}\n```")


def linked(names: list[tuple[str, object]]) -> str:
    return table(["name", "what it is"], [[f"[`{name}`]({name}.md)", first_line(thing)] for name, thing in names])


def grouped() -> list[str]:
    """Names of the package, group by group; a name that no group has is an error."""
    known = {name for group in GROUPS.values() for name in group}
    errors = [n for n in calibeat.__all__ if inspect.isclass(o := getattr(calibeat, n)) and issubclass(o, CalibeatError)]
    others = [n for n in calibeat.__all__ if n not in known and not is_preset(n) and n not in errors and n != "__version__"]
    groups = {**GROUPS, **({"More": tuple(others)} if others else {})}
    parts: list[str] = []
    for title, names in groups.items():
        things = [(name, getattr(calibeat, name)) for name in names]
        for name, thing in things:
            page(name, f"calibeat.{name}", thing)
        parts += [f"## {title}", linked(things), toctree([name for name, _ in things], "hidden")]
    return parts


def packages() -> list[str]:
    """Packages beside it, as far as what they need is installed."""
    rows, names = [], []
    for dotted, extra in PACKAGES.items():
        try:
            module = importlib.import_module(dotted)
        except ImportError:
            continue
        install = f"`pip install 'calibeat[{extra}]'`" if extra else "nothing more"
        rows.append([f"[`{dotted}`]({dotted}.md)", first_line(module), install])
        names.append(page(dotted, dotted, module).rpartition("/")[2])
    return ["## Adapters and packages", table(["name", "what it is", "needs"], rows), toctree(names, "hidden")]


def errors() -> None:
    """The page of the errors: the tree, and each with its message."""
    things = [
        (name, thing)
        for name in calibeat.__all__
        if inspect.isclass(thing := getattr(calibeat, name)) and issubclass(thing, CalibeatError)
    ]
    rows = [[f"`{name}`", ", ".join(f"`{base.__name__}`" for base in thing.__bases__), first_line(thing)] for name, thing in things]
    text = (
        "# Errors\n\nAll errors that calibeat raises are a `CalibeatError`. A message says what is wrong, what is required, "
        "what came, and where: `score must be in [0, 1], got 1.3 - at row 17`. The command line prints the same sentence "
        "and ends with status 2. The service answers with the same sentence in its one shape of errors.\n\n"
        + table(["error", "is also", "when"], rows)
        + "\n\n```{eval-rst}\n"
        + "\n\n".join(f".. autoexception:: calibeat.{name}" for name, _ in things)
        + "\n```"
    )
    write("reference/errors.md", text)


def generate(_report: Callable[[str], None]) -> None:
    """All pages of the reference that come from names."""
    presets = [f"[`{name}`](../methods/{name.lower()}.md)" for name in calibeat.__all__ if is_preset(name)]
    parts = [
        "# Every public name",
        "`from calibeat import ...` gives every name of this page that is written without a dot. The pages are made "
        "from the docstrings. Their examples run in the tests.",
        *grouped(),
        "## Presets",
        "A preset is a `Method` that only picks parts. Each has a page: " + ", ".join(presets) + ".",
        *packages(),
    ]
    write(f"{FOLDER}/index.md", "\n\n".join(parts))
    errors()
