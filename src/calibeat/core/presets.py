"""AUTO, our own method, and those of the paper, by name. A preset only picks parts."""

from __future__ import annotations

import difflib
from typing import Any

from calibeat.errors import UnknownMethod

from .calibeating import Hedging, Tracking
from .features import Beta, Platt
from .guard import Guard
from .learners import ONS
from .method import Method
from .mixtures import Lanes
from .refit import FTL, Fixed, Histogram
from .spline import Spline

AUTO = Method(Beta(), Lanes(), Spline())

BM = Method()

OPS = Method(Platt(), ONS())
TOPS = Method(Platt(), ONS(), Tracking())
HOPS = Method(Platt(), ONS(), Hedging())

OBS = Method(Beta(), ONS(rho=25.0))
TOBS = Method(Beta(), ONS(rho=25.0), Tracking())
HOBS = Method(Beta(), ONS(rho=25.0), Hedging())

FPS = Method(Platt(), Fixed())
FBS = Method(Beta(), Fixed())
WPS = Method(Platt(), FTL())
WBS = Method(Beta(), FTL())
SWPS = Method(Platt(), FTL(every=100, window=1000))
SWBS = Method(Beta(), FTL(every=100, window=1000))

WHB = Method(Histogram(), FTL())
TWHB = Method(Histogram(), FTL(), Tracking())

F99 = Method(None, None, Hedging(start="first", groups=1))

GAUTO = Method(Beta(), Lanes(), Spline(), Guard())
GOPS = Method(Platt(), ONS(), None, Guard())
GTOPS = Method(Platt(), ONS(), Tracking(), Guard())

PRESETS: dict[str, Method] = {
    "auto": AUTO,
    "bm": BM,
    "ops": OPS,
    "tops": TOPS,
    "hops": HOPS,
    "obs": OBS,
    "tobs": TOBS,
    "hobs": HOBS,
    "fps": FPS,
    "wps": WPS,
    "fbs": FBS,
    "wbs": WBS,
    "swps": SWPS,
    "swbs": SWBS,
    "whb": WHB,
    "twhb": TWHB,
    "f99": F99,
    "gauto": GAUTO,
    "gops": GOPS,
    "gtops": GTOPS,
}


def method_named(name: Any) -> Method:
    """A preset by its name, in any case.

    >>> method_named("tops") is TOPS
    True
    >>> method_named("topps")
    Traceback (most recent call last):
    ...
    calibeat.errors.UnknownMethod: method must be one of the presets, got 'topps' - did you mean 'tops'?
    """
    if not isinstance(name, str):
        raise UnknownMethod(f"method must be a Method or the name of a preset, got {type(name).__name__} {name!r:.60}")
    if name.lower() in PRESETS:
        return PRESETS[name.lower()]
    close = difflib.get_close_matches(name.lower(), PRESETS, n=1, cutoff=0.5)
    hint = f"did you mean {close[0]!r}?" if close else f"there are {', '.join(PRESETS)}"
    raise UnknownMethod(f"method must be one of the presets, got {name!r:.60} - {hint}")


def name_of(method: Method) -> str | None:
    """The preset's name, or None for a method that has none."""
    return next((name for name, preset in PRESETS.items() if preset == method), None)
