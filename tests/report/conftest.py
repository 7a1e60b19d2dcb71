"""The browser of the tests of pages: one for each file."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import browser
import pytest


@pytest.fixture(scope="module")
def chrome() -> Iterator[Any]:
    with browser.browser() as started:
        yield started
