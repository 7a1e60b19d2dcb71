"""One progress bar for every command: on a terminal a bar, elsewhere nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO

Step = Callable[..., None]


@contextmanager
def progress(total: int | None, log: TextIO, *, unit: str = "", done: int = 0) -> Iterator[Step]:
    """Yield ``step(count=1, what="")``, which moves the bar on and says what is being done now.

    The bar is drawn only where `log` is a terminal and tqdm is installed; it is removed at the end.

    >>> import io
    >>> log = io.StringIO()
    >>> with progress(3, log, unit="runs") as step:
    ...     step(1, "first")
    >>> log.getvalue()
    ''
    """
    if not log.isatty():
        yield no_progress
        return
    try:
        from tqdm import tqdm
    except ImportError:
        yield no_progress
        return
    with tqdm(
        total=total, initial=done, file=log, unit=f" {unit}", unit_scale=total is None or total > 1000, leave=False
    ) as bar:

        def step(count: int = 1, what: str = "") -> None:
            if what:
                bar.set_description_str(what)
            bar.update(count)

        yield step


def no_progress(count: int = 1, what: str = "") -> None:
    """A step without a bar."""
