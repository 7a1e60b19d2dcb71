"""A picture of a report for the documentation.

`python tests/report_picture.py REPORT.html PICTURE.png [SECTION HEIGHT]`.

It shows the page from its top, or from a section on, such as `classes`.
"""

from __future__ import annotations

import sys
from pathlib import Path

from browser import browser, open_page, screenshot, settle

WIDTH, HEIGHT = 1280, 2010


def main(report: str, picture: str, section: str | None = None, height: str = str(HEIGHT)) -> None:
    with browser() as chrome:
        open_page(chrome, Path(report).resolve(), WIDTH, int(height))
        if section is not None:
            chrome.execute_script(
                "document.getElementById(arguments[0]).scrollIntoView({behavior: 'instant'})", section
            )
            settle(chrome)
        Path(picture).write_bytes(screenshot(chrome, whole=False))


if __name__ == "__main__":
    main(*sys.argv[1:])
