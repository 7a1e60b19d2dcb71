"""Pictures of the dashboard for the documentation: `python tests/dashboard_picture.py docs`."""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

from browser import browser, screenshot
from dashboards import open_dashboard
from served import service_apart
from service_fill import cities, fill

DAYS, STREAMS, EVENTS = 45, 12, 60_000
SCREENS = {"dashboard": ("/", 1240), "dashboard-stream": ("/#/stream/quito", 1560)}


def main(folder: str) -> None:
    """Fill a store, serve it, and photograph the list and one stream."""
    with tempfile.TemporaryDirectory() as place:
        store = Path(place) / "calibeat.db"
        fill(store, cities(STREAMS, seed=5), EVENTS, DAYS, end=time.time() - 90)
        with service_apart(store, "--monitor", "20000", "--expire", "7d") as service, browser() as chrome:
            for name, (where, height) in SCREENS.items():
                open_dashboard(chrome, service.url + where, height=height)
                (Path(folder) / f"{name}.png").write_bytes(screenshot(chrome, whole=False))


if __name__ == "__main__":
    main(*sys.argv[1:])
