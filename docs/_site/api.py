"""Reference pages of every public name, from the package itself."""

from __future__ import annotations

import importlib
import inspect
import types

import calibeat
from calibeat.core.method import PRESETS
from calibeat.errors import CalibeatError

from .pages import table, toctree, write

FOLDER = "reference/api"
HOSTS = ("Calibrator", "Groups", "Number", "Forecast", "Bands", "Bank", "MultiCalibrator", "MultiForecast", "MultiBank")
DATA = {"NOT_YET": "The reasons of a forecast that mean: not enough evidence yet"}  # these have no docstrings
WATCHERS = ("Monitor", "Notice", "Silence", "Shift")
FEATURES = ("Platt", "Beta", "Temperature", "Histogram")
LEARNERS = ("ONS", "OGD", "AIOLI", "Lanes", "Fixed", "FTL")
CALIBEATERS = ("Tracking", "Hedging", "Spline")
GROUPS: dict[str, tuple[str, ...]] = {
    "Hosts": (*HOSTS, *WATCHERS),
    "Methods and their parts": ("Method", *FEATURES, *LEARNERS, *CALIBEATERS, "Guard"),
    "Functions": ("backtest", "BacktestResult"),
    "Constants": tuple(DATA),
    "Modules of numbers": ("metrics", "bounds", "late"),
}
# Adapters and packages by the extra that they need; one that is not installed is left out.
PACKAGES = {
    "calibeat.sklearn": "sklearn",
    "calibeat.river": "river",
    "calibeat.plot": "plot",
    "calibeat.export": "",
    "calibeat.client": "client",
    "calibeat.service": "service",
    "calibeat.spark": "spark",
}
ABOUT = """# Every public name

`from calibeat import ...` gives every name of this page that is written without a dot. The pages are made from the
docstrings. Their examples run in the tests."""
ABOUT_ERRORS = """# Errors

All errors that calibeat raises are a `CalibeatError`. A message says what is wrong, what is required, what came, and
where: `score must be in [0, 1], got 1.3 - at row 17`. The command line prints the same sentence and ends with status 2.
The service answers with the same sentence in its one shape of errors."""


def first_line(thing: object) -> str:
    """What a name is, in a line."""
    return (inspect.getdoc(thing) or "").split("\n")[0].rstrip(".")


def is_preset(name: str) -> bool:
    """Whether a public name is a method, which has a page of its own."""
    return name.lower() in PRESETS


def errors() -> dict[str, type[CalibeatError]]:
    """Public errors by name."""
    things = ((name, getattr(calibeat, name)) for name in calibeat.__all__)
    return {name: thing for name, thing in things if inspect.isclass(thing) and issubclass(thing, CalibeatError)}


def page(name: str, dotted: str, thing: object) -> None:
    """The page of a class, a function or a module."""
    if isinstance(thing, types.ModuleType):
        imported = "\n   :imported-members:" if hasattr(thing, "__all__") else ""
        body = f".. automodule:: {dotted}\n   :members:\n   :member-order: bysource{imported}"
    elif inspect.isclass(thing):
        body = f".. autoclass:: {dotted}\n   :members:\n   :inherited-members:\n   :member-order: bysource"
    elif name in DATA:
        body = f".. py:data:: {dotted}\n   :value: {thing!r}\n\n   {DATA[name]}."
    else:
        body = f".. autofunction:: {dotted}"
    write(f"{FOLDER}/{name}.md", f"# {name}\n\n```{{eval-rst}}\n{body}\n```")


def grouped() -> list[str]:
    """Names of the package, group by group."""
    known = {"__version__", *errors(), *(name for group in GROUPS.values() for name in group)}
    others = tuple(name for name in calibeat.__all__ if name not in known and not is_preset(name))
    parts: list[str] = []
    for title, names in {**GROUPS, **({"More": others} if others else {})}.items():
        for name in names:
            page(name, f"calibeat.{name}", getattr(calibeat, name))
        about = [DATA.get(name) or first_line(getattr(calibeat, name)) for name in names]
        rows = [[f"[`{name}`]({name}.md)", line] for name, line in zip(names, about, strict=True)]
        parts += [f"## {title}", table(["name", "what it is"], rows), toctree(list(names), "hidden")]
    return parts


def packages() -> list[str]:
    """Packages beside it, as far as what they need is installed."""
    rows = []
    for dotted, extra in PACKAGES.items():
        try:
            module = importlib.import_module(dotted)
        except ImportError:
            continue
        page(dotted, dotted, module)
        install = f"`pip install 'calibeat[{extra}]'`" if extra else "nothing more"
        rows.append([f"[`{dotted}`]({dotted}.md)", first_line(module), install])
    names = [row[0].partition("`")[2].partition("`")[0] for row in rows]
    return ["## Adapters and packages", table(["name", "what it is", "needs"], rows), toctree(names, "hidden")]


def error_page() -> None:
    """The errors as a table, and each with its docstring."""
    rows = [
        [f"`{name}`", ", ".join(f"`{base.__name__}`" for base in thing.__bases__), first_line(thing)]
        for name, thing in errors().items()
    ]
    directives = "\n\n".join(f".. autoexception:: calibeat.{name}" for name in errors())
    parts = [ABOUT_ERRORS, table(["error", "is also", "when"], rows), f"```{{eval-rst}}\n{directives}\n```"]
    write("reference/errors.md", "\n\n".join(parts))


def generate() -> None:
    """All pages of the reference that come from names."""
    presets = [f"[`{name}`](../methods/{name.lower()}.md)" for name in calibeat.__all__ if is_preset(name)]
    about = f"A preset is a `Method` that only picks parts. Each has a page: {', '.join(presets)}."
    write(f"{FOLDER}/index.md", "\n\n".join([ABOUT, *grouped(), "## Presets", about, *packages()]))
    error_page()
