"""`calibeat serve`: the calibration service."""

from __future__ import annotations

import argparse
import gc
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from calibeat._util.extras import need
from calibeat._util.times import check_age
from calibeat.cli.environment import from_environment
from calibeat.errors import InvalidInput

PORT = 8377
ARL = 1_000_000
STOPPED = 130
_TIME = "a time such as 12h or 30d"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What can be typed behind `calibeat serve`."""
    parser.description = (
        "Scores in, calibrated probabilities out, outcomes whenever they come. Nobody is answered before the store has "
        "it on the disk. SIGTERM answers what waits and exits with 0. An option that is not typed comes from the "
        "environment variable in brackets, if that is set: a password in CALIBEAT_STORE is in no list of processes."
    )
    add = parser.add_argument
    add("--store", required=True, metavar="STORE", help="a path, sqlite:///... or postgresql://...; made if missing")
    add("--method", metavar="NAME", help="of a new store (auto); calibeat store configure changes that of an old one")
    add("--seed", type=int, metavar="N", help="for methods that draw, and a new store (0)")
    add_band(parser)
    add("--host", default="127.0.0.1", help="another than loopback needs a token: calibeat token create (127.0.0.1)")
    add("--port", type=int, default=PORT, metavar="N", help=f"0 takes a free one ({PORT})")
    words = "Settings of a new store. An old one has them already: calibeat store configure changes them."
    labels = parser.add_argument_group("outcomes", words)
    labels.add_argument("--expire", metavar="AGE", help=f"give up forecasts without outcome at this age, {_TIME}")
    labels.add_argument("--expire-as", type=int, choices=(0, 1), help="and learn this outcome in its place")
    labels.add_argument("--mature", metavar="AGE", help=f"learn outcomes, ones and zeros, at this age, {_TIME}")
    watch = parser.add_argument_group("alarms")
    add_monitor(watch, f"watch every stream; N is the mean number of outcomes between false alarms ({ARL:,})")
    add_notice(watch)
    watch.add_argument("--webhook", metavar="URL", help="where to POST alarms")
    watch.add_argument("--webhook-secret-file", type=Path, metavar="FILE", help="signs them")
    watch.add_argument("--webhook-format", choices=("json", "slack"), default="json", help="what is sent (json)")
    watch.add_argument("--public-url", metavar="URL", help="of the dashboard, for links in alarms (where it listens)")
    http = parser.add_argument_group("HTTP")
    http.add_argument("--access-log", action="store_true", help="one JSON line for each request, to standard error")
    http.add_argument(
        "--log-format", choices=("text", "json"), default="text", help="of the lines on standard error (text)"
    )
    for option in parser._actions[1:]:  # noqa: SLF001 - argparse has no other list; the first is --help
        from_environment(option)


def add_monitor(group: Any, what: str) -> None:
    """Whether streams are watched."""
    group.add_argument("--monitor", nargs="?", type=float, const=ARL, metavar="N", help=what)


def add_band(group: Any) -> None:
    """Whether forecasts say how sure they are."""
    words = "forecasts come with low, high, outcomes and reason: how sure they are; auto only (off, in a new store)"
    group.add_argument("--band", action=argparse.BooleanOptionalAction, help=words)


def add_notice(group: Any) -> None:
    """Whether silence is noticed."""
    words = "notice silence, late outcomes and a score that has moved, of every stream (on, in a new store)"
    group.add_argument("--notice", action=argparse.BooleanOptionalAction, help=words)


def run(args: argparse.Namespace) -> int:
    """Run `calibeat serve`."""
    for library in ("msgspec", "starlette", "uvicorn", "httptools", "httpx", "prometheus_client"):
        need(library, "service", "the service")
    from calibeat.service.main import ServeOptions, serve
    from calibeat.service.settings import EngineSettings

    settings = EngineSettings(
        method=args.method,
        seed=args.seed,
        monitor=args.monitor,
        notice=args.notice,
        band=args.band,
        expire=None if args.expire is None else seconds("expire", args.expire),
        expire_as=args.expire_as,
        mature=None if args.mature is None else seconds("mature", args.mature),
    )
    options = ServeOptions(
        store=args.store,
        settings=settings,
        host=args.host,
        port=args.port,
        access_log=args.access_log,
        log_format=args.log_format,
        webhook=args.webhook,
        webhook_secret=args.webhook_secret_file,
        webhook_format=args.webhook_format,
        public_url=args.public_url,
    )
    with few_collections():
        stopped_by = serve(options)
    return STOPPED if stopped_by == signal.SIGINT else 0


@contextmanager
def few_collections() -> Iterator[None]:
    """Python looks for garbage less often: the service makes many objects, and hardly a cycle of them."""
    before = gc.get_threshold()
    gc.freeze()  # what is loaded stays
    gc.set_threshold(50_000, 20, 20)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()


def seconds(what: str, age: str) -> float:
    """An age in seconds; a number of events is no age."""
    length, is_time = check_age(what, age)
    if not is_time:
        raise InvalidInput(f"{what} must be {_TIME}, got {age!r}")
    return length / 1e6
