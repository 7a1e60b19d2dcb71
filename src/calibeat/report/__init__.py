"""One self-contained page from the numbers of a backtest."""

from __future__ import annotations

from .page import html, write

__all__ = ["html", "write"]
