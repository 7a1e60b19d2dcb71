"""Pictures of the dashboard for the documentation: `python tests/dashboard_picture.py docs`.

They show a product with 30 streams, of which five are broken, and the alarms that the service raises for them.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

from browser import browser, screenshot
from dashboards import open_dashboard
from served import service_apart
from service_fill import fill, product, shaped

DAYS, EVENTS, WIDTH = 60, 90_000, 1400
SCREENS = {"dashboard": ("/", 1320), "dashboard-stream": ("/#/stream/support%2Fescalation", 1780)}


def main(folder: str) -> None:
    """Fill a store, serve it, and photograph the list and one stream."""
    with tempfile.TemporaryDirectory() as place:
        store, end = Path(place) / "calibeat.db", time.time() - 90
        fill(store, product(), EVENTS, DAYS, end=end)
        shaped(store, end=end)
        with service_apart(store, "--monitor", "20000", "--expire", "7d") as service, browser() as chrome:
            for name, (where, height) in SCREENS.items():
                open_dashboard(chrome, service.url + where, width=WIDTH, height=height)
                (Path(folder) / f"{name}.png").write_bytes(screenshot(chrome, whole=False))


if __name__ == "__main__":
    main(*sys.argv[1:])
