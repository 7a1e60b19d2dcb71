"""Pictures of forecasts with many classes: the confidence of the top class, and a small diagram for each class."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from typing import Any, Self

import numpy as np

from calibeat import metrics
from calibeat._util.check import check_labelled, check_whole
from calibeat._util.extras import need
from calibeat.metrics import wilson

from .calibration import ReliabilityDisplay

MOST_PANELS = 12  # classes that are drawn unless told; the most common ones


class ConfidenceReliabilityDisplay(ReliabilityDisplay):
    """A reliability diagram of the top class: how often it was right when it had so much confidence.

    It reads like a `ReliabilityDisplay`: a point below the diagonal is a model that is too sure of itself.

    >>> from calibeat.plot import ConfidenceReliabilityDisplay
    >>> P = [[0.75, 0.25, 0.0], [0.25, 0.0, 0.75], [0.5, 0.3, 0.2], [0.9, 0.1, 0.0]]
    >>> display = ConfidenceReliabilityDisplay.from_predictions([0, 1, 0, 0], P, bins=2, name="model")
    >>> display.count.tolist()
    [0, 4]
    """

    @classmethod
    def from_predictions(  # type: ignore[override]  # labels and a matrix, where the parent takes outcomes and a column
        cls,
        labels: Any,
        forecasts: Any,
        *,
        classes: Sequence[Any] | None = None,
        bins: int = 10,
        confidence: float = 0.95,
        name: str | None = None,
        ax: Any = None,
        **kwargs: Any,
    ) -> Self:
        """Labels (column numbers, or those of `classes`) and an (n, K) matrix of forecasts, drawn."""
        curve = metrics.confidence_reliability_curve(labels, forecasts, bins, classes=classes)
        low, high = wilson(curve.mean_outcome, curve.count, confidence)
        return cls(*curve, low, high, name=name).plot(ax, **kwargs)

    def plot(self, ax: Any = None, name: str | None = None, **kwargs: Any) -> Self:
        """Draw on `ax`, or on a figure of its own; further arguments are those of the line."""
        super().plot(ax, name, **kwargs)
        self.ax_.set(xlabel="confidence of the top class", ylabel="share that was right")
        return self


class ClasswiseReliabilityDisplay:
    """Small multiples: a reliability diagram of "is it this class?" for each class, the most common ones first.

    Parameters
    ----------
    names : the classes that are drawn.
    panels : a `ReliabilityDisplay` for each.

    Attributes
    ----------
    axes_, figure_ : what was drawn.

    >>> import numpy as np
    >>> from calibeat.plot import ClasswiseReliabilityDisplay
    >>> labels, P = ["dog"] * 20 + ["cat"] * 10, np.full((30, 3), 1 / 3)
    >>> ClasswiseReliabilityDisplay.from_predictions(labels, P, classes=["cat", "dog", "ox"]).names
    ['dog', 'cat', 'ox']
    """

    def __init__(self, names: list[str], panels: list[ReliabilityDisplay]) -> None:
        self.names, self.panels = names, panels

    @classmethod
    def from_predictions(
        cls,
        labels: Any,
        forecasts: Any,
        *,
        classes: Sequence[Any] | None = None,
        bins: int = 10,
        confidence: float = 0.95,
        most: int = MOST_PANELS,
        figure: Any = None,
        **kwargs: Any,
    ) -> Self:
        """Labels and an (n, K) matrix of forecasts, drawn; of more than `most` classes the most common ones."""
        y, P = check_labelled(labels, forecasts, classes)
        K = P.shape[1]
        shown = np.argsort(-np.bincount(y, minlength=K), kind="stable")[: check_whole("most", most, 1, 10**6)]
        names, panels = [], []
        for k in shown.tolist():
            curve = metrics.reliability_curve((y == k).astype(float), np.minimum(P[:, k], 1.0), bins)
            low, high = wilson(curve.mean_outcome, curve.count, confidence)
            names.append(str(k if classes is None else classes[k]))
            panels.append(ReliabilityDisplay(*curve, low, high))
        return cls(names, panels).plot(figure, **kwargs)

    def plot(self, figure: Any = None, **kwargs: Any) -> Self:
        """Draw on an empty figure, or on one of its own; further arguments are those of the lines."""
        columns = min(4, math.ceil(math.sqrt(len(self.panels))))
        rows = math.ceil(len(self.panels) / columns)
        if figure is None:
            figure = need("matplotlib.figure", "plot", "pictures").Figure(
                figsize=(2.6 * columns, 2.4 * rows), layout="constrained"
            )
        grid = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
        for at, (name, panel, ax) in enumerate(zip(self.names, self.panels, grid.flat, strict=False)):
            panel.plot(ax, **kwargs)
            ax.set_title(name, fontsize="small")
            if ax.get_legend() is not None:
                ax.get_legend().remove()
            if at + columns < len(self.panels):
                ax.set_xlabel("")
            if at % columns:
                ax.set_ylabel("")
        for ax in grid.flat[len(self.panels) :]:
            ax.set_visible(False)
        self.axes_, self.figure_ = grid, figure
        return self

    def _repr_png_(self) -> bytes:
        """For notebooks."""
        picture = io.BytesIO()
        self.figure_.savefig(picture, format="png")
        return picture.getvalue()
