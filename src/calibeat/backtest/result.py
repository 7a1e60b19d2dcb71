"""What a backtest found: plain numbers, a page for people, a picture for a notebook."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from calibeat._util.check import check_choice
from calibeat._util.extras import need
from calibeat._util.types import Vector
from calibeat.errors import InvalidInput

if TYPE_CHECKING:
    from calibeat.report.schema import Payload

MEASURED = (
    *("log_loss", "brier", "ce", "ce_luck", "shp", "refinement", "accuracy", "auc", "regret", "log_e_value"),
    "log_e_max",
)


@dataclass(frozen=True, eq=False, repr=False)
class BacktestResult:
    """The result of `calibeat.backtest`.

    Attributes
    ----------
    table : a mapping from the name of a column to one value a method: ``method``, ``log_loss``, ``brier``, ``ce``,
        ``ce_luck`` (what luck alone would show), ``shp``, ``refinement``, ``accuracy``, ``auc``, ``regret``,
        ``log_e_value``, ``log_e_max``, and the differences to the raw score with their 95 % intervals on this log:
        ``log_loss_vs_raw``, ``log_loss_low``, ``log_loss_high``, ...; likewise to the best other method, whose name is
        in ``best_other``: ``log_loss_vs_best_other``, ``log_loss_vs_best_other_low``, ``log_loss_vs_best_other_high``,
        ... ``ce`` has differences and no intervals: there is no honest one.
        ``elsewhere_low`` and ``elsewhere_high``: what resampled stretches show of ``log_loss_vs_raw``.
        With many classes ``ce`` is that of the top class, ``brier`` is summed over the classes, and there is
        ``classwise_ce``; ``shp``, ``refinement``, ``auc`` and ``regret`` are NaN.
    windows : a mapping: ``start``, ``end``, ``count``, ``base_rate``, ``mean_score`` of each window, and for each
        method a mapping of its ``ce``, ``log_loss`` and ``brier`` in each.
    forecasts : the forecasts of every method in the order of the rows, NaN where one was skipped, if `backtest` was
        asked to keep them; otherwise empty.

    >>> import calibeat
    >>> scores, outcomes = [0.9, 0.8, 0.7, 0.6] * 250, [1, 0, 1, 0] * 250
    >>> result = calibeat.backtest(scores, outcomes, methods=["ops", "tops"])
    >>> result.table["method"].tolist()
    ['raw', 'ops', 'tops']
    >>> bool(result.table["log_loss"][1] < result.table["log_loss"][0])
    True
    >>> result.best, result.verdict.split(":")[0]
    ('tops', 'Use TOPS')
    """

    _payload: Payload
    forecasts: dict[str, Vector] = field(default_factory=dict)

    @property
    def best(self) -> str:
        """The method that the verdict names; ``"raw"`` where it is to keep the raw score."""
        return self._payload["verdict"]["method"]

    @property
    def verdict(self) -> str:
        """The verdict in one line."""
        return self._payload["verdict"]["headline"]

    @property
    def table(self) -> dict[str, Any]:
        """One array per column, one entry per method."""
        rows = self._payload["table"]
        columns: dict[str, Any] = {"method": np.array([row["method"] for row in rows])}
        for name in MEASURED:
            columns[name] = _floats([row[name] for row in rows])  # type: ignore[literal-required]  # one of the above
        for name in ("log_loss", "brier", "ce"):
            for against, low in (("vs_raw", ""), ("vs_best_other", "vs_best_other_")):
                triples = [row[against][name] if row[against] else [None] * 3 for row in rows]  # type: ignore[literal-required]  # as above
                suffixes = [against] if name == "ce" else [against, f"{low}low", f"{low}high"]
                for k, suffix in enumerate(suffixes):
                    columns[f"{name}_{suffix}"] = _floats([triple[k] for triple in triples])
        others = [row["vs_best_other"]["method"] if row["vs_best_other"] else "" for row in rows]
        columns["best_other"] = np.array(others)
        for end in ("low", "high"):
            ends = [row["elsewhere"][end] if row["elsewhere"] else None for row in rows]
            columns[f"elsewhere_{end}"] = _floats(ends)
        if "classes" in self._payload:
            by_method = self._payload["classes"]["methods"]
            columns["classwise_ce"] = _floats([by_method[row["method"]]["classwise_ce"] for row in rows])
        return columns

    @property
    def windows(self) -> dict[str, Any]:
        """The same over time: one array per column, one entry per window."""
        windows = self._payload["windows"]
        when = np.dtype("datetime64[s]") if windows["by"] == "time" else np.dtype(np.int64)
        return {
            "start": np.array(windows["start"], dtype=when),
            "end": np.array(windows["end"], dtype=when),
            "count": np.array(windows["count"], dtype=np.int64),
            "base_rate": _floats(windows["base_rate"]),
            "mean_score": _floats(windows["mean_score"]),
            "methods": {
                name: {key: _floats(values) for key, values in scores.items()}  # type: ignore[arg-type]  # lists of numbers
                for name, scores in windows["methods"].items()
            },
        }

    @property
    def payload(self) -> Payload:
        """Everything that the report shows, as JSON-able data."""
        return self._payload

    def to_json(self) -> str:
        """`payload` as text."""
        return json.dumps(self._payload, allow_nan=False)

    def to_html(self, path: str | os.PathLike[str]) -> None:
        """Write the report: one page that needs nothing but itself. Whole or not at all.

        Raises
        ------
        OSError : if `path` cannot be written.
        """
        from calibeat.report.page import write

        write(self._payload, path)

    def plot(self, ax: Any = None, measure: str = "ce") -> Any:
        """Draw a measure (``"ce"``, ``"log_loss"``, ``"brier"``) of every method over the windows; returns the axes.

        The numbers are `windows`. Needs matplotlib. Without `ax` a figure is made that pyplot does not manage.

        Raises
        ------
        InvalidInput : if `measure` is another one, or `ax` are no axes.
        MissingExtra : if matplotlib is not installed.
        """
        check_choice("measure", measure, ("ce", "log_loss", "brier"))
        if ax is None:
            figure = need("matplotlib.figure", extra="plot", what="pictures")
            ax = figure.Figure(figsize=(8.0, 4.0), layout="constrained").add_subplot()
        elif not hasattr(ax, "plot"):
            raise InvalidInput(f"ax must be axes of matplotlib, got {type(ax).__name__}")
        labels = {method["name"]: method["label"] for method in self._payload["methods"]}
        windows = self.windows
        for at, (name, scores) in enumerate(windows["methods"].items()):
            style = (
                {"color": "black", "linestyle": "--"} if at == 0 else {"linewidth": 2.0 if name == self.best else 1.0}
            )
            ax.plot(windows["end"], scores[measure], label=labels[name], **style)
        ax.set_xlabel("time" if self._payload["windows"]["by"] == "time" else "event")
        ax.set_ylabel({"ce": "calibration error", "log_loss": "log-loss", "brier": "Brier score"}[measure])
        ax.legend(fontsize="small")
        return ax

    def _repr_html_(self) -> str:
        """For a notebook: verdict, leaderboard and one picture."""
        from calibeat.report.notebook import snippet

        return snippet(self._payload)

    def __repr__(self) -> str:
        data = self._payload["data"]
        return f"BacktestResult({len(self._payload['methods'])} methods, {data['judged']:,} events, {self.verdict!r})"


def _floats(values: list[float | None]) -> Vector:
    return np.array([np.nan if value is None else value for value in values])
