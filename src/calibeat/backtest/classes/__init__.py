"""Backtests of many classes: K scores and a label for each event."""
