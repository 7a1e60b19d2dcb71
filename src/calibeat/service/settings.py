"""The settings of an engine. Those that change what is learnt or watched belong to the store, and are checked by it."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Any

from calibeat._util.check import check_interval, check_whole, shown
from calibeat._util.times import duration_named
from calibeat.core.method import method_named
from calibeat.errors import InvalidInput, SnapshotMismatch

from .model import Model
from .store import Store
from .store.schema import Connection, get_meta, set_meta

DEFAULT_METHOD = "auto"
LONGEST_AGE = 365_250.0 * 86_400.0  # seconds


@dataclass(frozen=True)
class EngineSettings:
    """The settings of an `Engine`. All but the last three belong to the store: None takes the store's.

    Parameters
    ----------
    method : the name of a preset; AUTO for a new store.
    seed : for the draws of a hedging method; 0 for a new store.
    monitor : outcomes between false alarms (`Monitor.arl`); a new store watches nothing.
    notice : whether silence, late outcomes and a score that has moved are noticed (see `notices`); a new store does.
    expire : age in seconds at which a forecast without an outcome is given up; a new store waits for ever.
    expire_as : 0 or 1 is learnt in the place of the outcome that did not come; a new store drops such a forecast.
    mature : age in seconds at which an outcome is learnt, ones and zeros alike; a new store learns it when it comes.
    band : whether forecasts say how sure they are (`calibeat.Calibrator`), AUTO only; those of a new store do not.
    group : the most events in one transaction.
    queue, queue_events : the most requests and events that may wait; more are refused with 503.

    >>> EngineSettings(method="tops", expire=30 * 86_400.0).expire_as is None
    True
    """

    method: str | None = None
    seed: int | None = None
    monitor: float | None = None
    notice: bool | None = None
    expire: float | None = None
    expire_as: int | None = None
    mature: float | None = None
    band: bool | None = None
    group: int = 5_000
    queue: int = 20_000
    queue_events: int = 200_000

    def __post_init__(self) -> None:
        for name in ("expire", "mature"):
            if getattr(self, name) is not None:
                check_interval(name, getattr(self, name), 0.0, LONGEST_AGE)
        for name in ("group", "queue", "queue_events"):
            check_whole(name, getattr(self, name), 1, 2**31)
        if self.expire_as not in {None, 0, 1}:
            raise InvalidInput(f"expire_as must be 0, 1 or None, got {shown(self.expire_as)}")
        if self.expire_as is not None and self.expire is None:
            raise InvalidInput("expire_as must come with expire, got no expire")
        if self.expire is not None and self.mature is not None and self.expire <= self.mature:
            raise InvalidInput(f"expire must be longer than mature, got {self.expire:g} and {self.mature:g} seconds")


# Those that are changed by `configure`, and what a new store has.
CONFIGURED: dict[str, Any] = {
    "monitor": None,
    "notice": True,
    "expire": None,
    "expire_as": None,
    "mature": None,
    "band": False,
}


def settle_meta(store: Store, settings: EngineSettings) -> EngineSettings:
    """Return the settings of a store; a new store takes those that are given.

    Raises
    ------
    InvalidInput : a setting is given that is not the store's.
    SnapshotMismatch : the preset is not the one that the store was made with.
    """
    meta = get_meta(store.connection)
    if "method" not in meta:
        made = replace(
            settings,
            method=(settings.method or DEFAULT_METHOD).lower(),
            seed=settings.seed or 0,
            notice=settings.notice is not False,
            band=bool(settings.band),
        )
        model_of(made)  # a bad name is noticed before it is written
        claim_meta(store.connection, made)
        meta = get_meta(store.connection)  # another process may have been first
    return check_settings(meta, settings)


def check_settings(meta: dict[str, str], settings: EngineSettings) -> EngineSettings:
    """Return settings with everything that belongs to the store; raise if one is given that is not the store's."""
    check_described(meta)
    known = stored_settings(meta)
    given = settings.method and settings.method.lower()
    if given not in {None, known.method}:
        raise InvalidInput(
            f"method must be that of the store, {known.method!r}, got {settings.method!r} - "
            f"`calibeat store configure --method {settings.method}` moves the store to it"
        )
    if settings.seed not in {None, known.seed}:
        raise InvalidInput(f"seed must be that of the store, {known.seed}, got {settings.seed}")
    for name in CONFIGURED:
        value, wanted = getattr(known, name), getattr(settings, name)
        if wanted is not None and wanted != value:
            option = f"--{name.replace('_', '-')}"
            typed = setting_text(name, wanted)
            raise InvalidInput(
                f"{option} must be that of the store, {setting_text(name, value)}, got {typed} - leave it out, or "
                f"change it for all who serve the store: `calibeat store configure {option} {typed}`"
            )
    return replace(settings, method=known.method, seed=known.seed, **{n: getattr(known, n) for n in CONFIGURED})


def stored_settings(meta: dict[str, str]) -> EngineSettings:
    """Return the settings that a store has: those of a new one, if it was made for a token and never served."""
    if "method" not in meta:
        return EngineSettings(method=DEFAULT_METHOD, seed=0, **CONFIGURED)
    configured = {name: json.loads(meta[name]) for name in CONFIGURED}
    return EngineSettings(method=meta["method"], seed=int(meta["seed"]), **configured)


def setting_text(name: str, value: Any) -> str:
    """A setting as people type it.

    >>> setting_text("expire", 30 * 86_400.0), setting_text("monitor", 1e6), setting_text("notice", False)
    ('30d', '1000000', 'off')
    """
    if value is None or isinstance(value, bool):
        return "on" if value else "off"
    return duration_named(round(value * 1e6)) if name in {"expire", "mature"} else f"{value:.15g}"


def write_settings(connection: Connection, settings: EngineSettings) -> None:
    """Give a store other settings, where no service runs."""
    known = stored_settings(get_meta(connection))
    for name in CONFIGURED:
        set_meta(connection, name, json.dumps(getattr(settings, name)))
    if known.monitor != settings.monitor:  # monitors that begin, end or change in the middle cannot be replayed
        set_meta(connection, "monitor_whole", "0")


def claim_meta(connection: Connection, settings: EngineSettings) -> None:
    """Record what belongs to a new store, in one statement. The first process wins."""
    method = settings.method or DEFAULT_METHOD
    known = {"method": method, "seed": str(settings.seed or 0), "described": description_of(method)}
    known |= {name: json.dumps(getattr(settings, name)) for name in CONFIGURED}
    marks = ", ".join(["(?, ?)"] * len(known))
    connection.run(
        f"INSERT INTO meta (name, value) VALUES {marks} ON CONFLICT (name) DO NOTHING",  # noqa: S608 - only marks
        [part for pair in known.items() for part in pair],
    )


def model_of(settings: EngineSettings) -> Model:
    """How the streams of a store learn."""
    method, seed = settings.method or DEFAULT_METHOD, settings.seed or 0
    return Model.named(method, seed, settings.monitor, band=bool(settings.band))


def description_of(method: str) -> str:
    """A method with all its numbers, so that a preset that has changed is noticed."""
    return repr(method_named(method))


def check_described(meta: dict[str, str]) -> None:
    """Raise if the preset of this name is not the one that the store was made with."""
    if meta.get("described") != description_of(meta["method"]):
        raise SnapshotMismatch(
            f"store must be used with the {meta['method']!r} that it was made with, got one with other numbers - "
            f"`calibeat store replay --method {meta['method']}` makes its state anew"
        )
