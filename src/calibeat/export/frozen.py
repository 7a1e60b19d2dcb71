"""The current map from score to forecast, frozen, for places where calibeat does not run."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from calibeat.core import kernel
from calibeat.core.calibeating import Hedging, Tracking
from calibeat.core.features import Beta, Platt, Temperature
from calibeat.core.learners import AIOLI
from calibeat.core.mixtures import BEND, EPS, G_ATOM, LARGEST, LN4, OA, OB, OFFSET, SLOPE, WEIGHT, X_ATOM, Lanes
from calibeat.core.presets import name_of
from calibeat.core.refit import FTL, Fixed, Histogram
from calibeat.core.spline import (
    ATOM_PRIOR,
    ATOMS,
    CONTROL_EDGE,
    CONTROL_LEAST,
    CONTROL_PRIOR,
    COUNT,
    EXPERT_KNOTS,
    KNOTS,
    MC,
    RESIDUAL,
    X_MAX,
    XC,
    Spline,
    V,
)
from calibeat.errors import InvalidInput, MissingExtra

from . import expression
from .expression import Expression

if TYPE_CHECKING:
    from calibeat.stream.calibrator import Calibrator

LARGEST_EXPONENT = 700.0  # beyond it e^z is no float any more


@dataclass(frozen=True)
class Export:
    """What `Calibrator.export` gives: the present map as numbers, and as text in Python, SQL and JSON.

    Attributes
    ----------
    numbers : the map as plain numbers; a frozen OPS is two, and the clip of its scores.
    python : source of a function ``calibrate(score)``, which needs `math` and nothing else.
    sql : an expression of a column named ``score``, with the functions ln and exp (SQLite, DuckDB, PostgreSQL, ...);
        NULL where the score is NULL or outside [0, 1]. The column may be of text, decimals or whole numbers; text that
        is no number is NULL in SQLite, and an error in databases that refuse to cast it, such as DuckDB.
    json : the numbers and the formula, step by step; `calibeat.export.expression` lists its operators.
    onnx() : bytes of an ONNX model, for methods that only scale.

    Each agrees with `Calibrator.predict_many` to 1e-12 (ONNX to 1e-6). Nothing is learnt in a copy: export again
    when the stream has moved.

    >>> from calibeat import Calibrator, OPS
    >>> cal = Calibrator(OPS)
    >>> p = cal.run([0.8, 0.6, 0.9, 0.7] * 5, [1, 0, 0, 0] * 5)
    >>> exported = cal.export()
    >>> {name: round(number, 5) for name, number in exported.numbers.items()}
    {'a': 0.23958, 'b': -0.62486, 'clip': 1e-05}
    >>> space = {}
    >>> exec(exported.python, space)
    >>> abs(space["calibrate"](0.8) - float(cal.predict(0.8))) < 1e-12
    True
    """

    numbers: dict[str, Any]
    steps: tuple[tuple[str, Expression], ...]

    @property
    def python(self) -> str:
        """A Python function ``calibrate(score)``."""
        return expression.to_python(self.steps)

    @property
    def sql(self) -> str:
        """A SQL expression of a column ``score``."""
        return expression.to_sql(self.steps)

    @property
    def json(self) -> str:
        """The numbers and the steps as JSON."""
        return expression.to_json(self.steps, self.numbers)

    def onnx(self) -> bytes:
        """An ONNX model of the scaling: input ``score``, output ``forecast``, vectors of doubles of any length.

        NaN where the score is NaN or outside [0, 1]. Floats of single precision must be cast to doubles before, and a
        column of shape (n, 1) made a vector: runtimes refuse them.
        """
        return _onnx(self.numbers)


def frozen_map(calibrator: Calibrator) -> Export:
    """See `Calibrator.export`."""
    method, row = calibrator.method, calibrator.row.tolist()
    features, learner, calibeater = method.features, method.learner, method.calibeater
    if isinstance(calibeater, Hedging):
        raise InvalidInput(
            f"export needs a map from score to forecast, got {_called(calibrator)}, whose Hedging draws its forecast "
            "at random - export the method without its calibeater"
        )
    if isinstance(learner, AIOLI):
        raise InvalidInput(
            f"export needs a formula, got {_called(calibrator)}, whose AIOLI solves an equation for every score"
        )
    numbers: dict[str, Any] = {}
    steps: list[tuple[str, Expression]] = []
    if features is None or (isinstance(learner, (Fixed, FTL)) and calibrator.outcomes < learner.after):
        steps.append(("expert", "score"))  # a refit that has not come yet leaves the score alone
    elif isinstance(features, Histogram):
        numbers.update(calibrator.params)
        steps.append(("expert", ("lookup", "score", numbers["edges"], numbers["means"])))
    elif isinstance(learner, Lanes):
        _lanes(numbers, steps, row, features.clip)
    else:
        _scaling(numbers, steps, calibrator.params, features, exact=calibeater is not None)
    cells = row[int(method.spec[kernel.CELLS]) :]
    if isinstance(calibeater, Tracking):
        _tracking(numbers, steps, calibeater, cells)
    elif isinstance(calibeater, Spline) and isinstance(features, (Platt, Beta, Temperature)):
        _spline(numbers, steps, cells, features, calibeater.control)
    steps[-1] = ("forecast", steps[-1][1])
    return Export(numbers, tuple(steps))


def _called(calibrator: Calibrator) -> str:
    name = name_of(calibrator.method)
    return name.upper() if name else str(calibrator.method)


# ---- the expert --------------------------------------------------------------------------------------------------


def _scaling(
    numbers: dict[str, Any],
    steps: list[tuple[str, Expression]],
    params: dict[str, float],
    features: Platt | Beta | Temperature,
    *,
    exact: bool,
) -> None:
    """f, z = theta . x, sigmoid(z). What comes after it may need the very bits of the kernel's sigmoid: `exact`."""
    clip = features.clip
    numbers.update(params, clip=clip)
    theta, furthest = list(params.values()), math.log((1.0 - clip) / clip)
    steps.append(("f", ("clamp", "score", clip, 1.0 - clip)))
    terms: list[Expression] = [("*", theta[0], ("ln", "f" if isinstance(features, Beta) else _odds("f")))]
    if isinstance(features, Beta):
        terms.append(("*", theta[1], ("ln", ("-", 1.0, "f"))))
    terms += theta[len(terms) :]
    z: Expression = ("+", *terms) if len(terms) > 1 else terms[0]
    if math.fsum(abs(number) for number in theta) * max(furthest, 1.0) > LARGEST_EXPONENT:
        z = ("clamp", z, -LARGEST_EXPONENT, LARGEST_EXPONENT)
    if not exact:
        steps.append(("expert", _sigmoid(z)))
        return
    steps += [("z", z), ("e", ("exp", ("if>=", "z", 0.0, ("-", 0.0, "z"), "z")))]
    steps.append(("expert", ("/", ("if>=", "z", 0.0, 1.0, "e"), ("+", 1.0, "e"))))


def _lanes(numbers: dict[str, Any], steps: list[tuple[str, Expression]], row: list[float], clip: float) -> None:
    """`mixtures.mix` on the frozen row."""
    lanes = {
        "slope": row[SLOPE : SLOPE + 4], "bend": row[BEND : BEND + 4], "offset": row[OFFSET : OFFSET + 4],
        "weight": row[WEIGHT : WEIGHT + 6], "ops": [row[OA], row[OB]],
    }  # fmt: skip
    numbers.update(lanes, clip=clip)
    steps += [
        ("f", ("clamp", "score", clip, 1.0 - clip)),
        ("lf", ("ln", "f")),
        ("lg", ("ln", ("-", 1.0, "f"))),
        ("logit", ("-", "lf", "lg")),
        ("x", _at_the_clip(clip, -X_ATOM, X_ATOM, "logit")),
        ("g", _at_the_clip(clip, G_ATOM, G_ATOM, ("+", "lf", "lg", LN4))),
    ]
    for k, (a, c, b) in enumerate(zip(lanes["slope"], lanes["bend"], lanes["offset"], strict=True)):
        steps.append((f"lane{k}", _inside(_sigmoid(_bounded(("+", ("*", a, "x"), ("*", c, "g"), b))))))
    steps.append(("ops", _inside(_sigmoid(_bounded(("+", ("*", row[OA], "logit"), row[OB]))))))
    said = ["lane0", "lane1", "lane2", "lane3", "f", "ops"]
    mean = ("+", *(("*", w, name) for w, name in zip(lanes["weight"], said, strict=True)))
    steps.append(("expert", _inside(mean)))


# ---- the calibeater ----------------------------------------------------------------------------------------------


def _tracking(
    numbers: dict[str, Any], steps: list[tuple[str, Expression]], tracking: Tracking, cells: list[float]
) -> None:
    """`calibeating.track`: the mean of each bin of the expert, as a table."""
    m, prior = tracking.bins, tracking.prior
    means = []
    for b in range(m):
        total, count, middle = cells[2 * b], cells[2 * b + 1] + prior, (b + 0.5) / m
        means.append((total + prior * middle) / count if count > 0.0 else middle)
    numbers.update(bins=[b / m for b in range(1, m)], forecasts=means)
    steps.append(("tracked", ("lookup", steps[-1][0], numbers["bins"], means)))


def _spline(
    numbers: dict[str, Any],
    steps: list[tuple[str, Expression]],
    cells: list[float],
    features: Platt | Beta | Temperature,
    control: float,
) -> None:
    """`spline.spline` on the frozen row."""
    clip = features.clip
    weights, atoms = cells[V : V + 3], cells[ATOMS : ATOMS + 4]
    on_score, on_expert = cells[XC : XC + KNOTS], cells[MC : MC + EXPERT_KNOTS]
    numbers.update(spline_weight=weights, atoms=atoms, score_knots=on_score, expert_knots=on_expert)

    def atom(total: float, count: float) -> Expression:
        return ("/", ("+", total, ("*", ATOM_PRIOR, "m")), count + ATOM_PRIOR)

    if not any(name == "f" for name, _ in steps):  # the expert is the score itself
        numbers.update(clip=clip)
        steps.append(("f", ("clamp", "score", clip, 1.0 - clip)))
    steps += [
        ("m", _inside("expert")),
        ("place", ("*", ("+", _logit_of(features), X_MAX), 2.0)),
        ("shift", ("interpolate", "place", on_score)),
        ("s", _inside(_at_the_clip(clip, atom(*atoms[:2]), atom(*atoms[2:]), _shifted("shift")))),
        ("tenths", ("*", "m", 10.0)),
        ("bend", ("interpolate", "tenths", on_expert)),
        ("r", _inside(_shifted("bend"))),
        ("p", _inside(("+", ("*", weights[0], "m"), ("*", weights[1], "s"), ("*", weights[2], "r")))),
    ]
    if control > 0.0:
        residuals = zip(cells[RESIDUAL:COUNT], cells[COUNT : COUNT + 10], strict=True)
        means = [control * total / (count + CONTROL_PRIOR) for total, count in residuals]
        numbers.update(control=means)
        edges = [float(b) for b in range(1, 10)]
        steps += [
            ("tenth", ("*", "p", 10.0)),
            ("residual", ("lookup", "tenth", edges, means)),
            ("least", ("lookup", "tenth", edges, [b / 10.0 + CONTROL_EDGE for b in range(10)])),
            ("most", ("lookup", "tenth", edges, [(b + 1) / 10.0 - CONTROL_EDGE for b in range(10)])),
            ("controlled", ("clamp", ("+", "p", "residual"), "least", "most")),
            ("low", ("if<", "p", CONTROL_LEAST, "p", CONTROL_LEAST)),
            ("high", ("if<", "p", 1.0 - CONTROL_LEAST, 1.0 - CONTROL_LEAST, "p")),
            ("settled", ("clamp", "controlled", "low", "high")),
        ]


# ---- small things ------------------------------------------------------------------------------------------------


def _odds(f: str) -> Expression:
    return ("/", f, ("-", 1.0, f))


def _logit_of(features: Platt | Beta | Temperature) -> Expression:
    if isinstance(features, Beta):
        return ("-", ("ln", "f"), ("ln", ("-", 1.0, "f")))
    return ("ln", _odds("f"))


def _sigmoid(z: Expression) -> Expression:
    return ("/", 1.0, ("+", 1.0, ("exp", ("-", 0.0, z))))


def _bounded(z: Expression) -> Expression:
    return ("if<=", z, -LARGEST_EXPONENT, -LARGEST_EXPONENT, z)


def _inside(p: Expression) -> Expression:
    return ("clamp", p, EPS, LARGEST)


def _shifted(shift: str) -> Expression:
    return ("/", "m", ("+", "m", ("*", ("-", 1.0, "m"), ("exp", ("-", 0.0, shift)))))


def _at_the_clip(clip: float, low: Expression, high: Expression, between: Expression) -> Expression:
    return ("if<=", "f", clip, low, ("if>=", "f", 1.0 - clip, high, between))


# ---- ONNX --------------------------------------------------------------------------------------------------------


def _onnx(numbers: dict[str, Any]) -> bytes:
    """The graph of sigmoid(theta . x); doubles, for 1 - f of a float near 1 has too few digits left."""
    theta = [numbers[name] for name in ("a", "b", "c") if name in numbers]
    if set(numbers) - {"a", "b", "c", "clip"}:
        raise InvalidInput(
            f"onnx needs a method that only scales (such as OPS or OBS), got one with {', '.join(numbers)} - "
            "export it without its calibeater, or as Python, SQL or JSON"
        )
    try:
        from onnx import TensorProto, checker, helper
    except ImportError as error:
        raise MissingExtra("ONNX models need the extra 'onnx': pip install 'calibeat[onnx]'") from error
    nodes: list[Any] = []
    constants: dict[str, Any] = {}

    def node(operator: str, *inputs: str | float) -> str:
        names = []
        for value in inputs:
            if not isinstance(value, str):
                name = f"number{len(constants)}"
                constants[name] = helper.make_tensor(name, TensorProto.DOUBLE, [], [value])
                value = name  # noqa: PLW2901 - a number goes by the name of its tensor
            names.append(value)
        nodes.append(helper.make_node(operator, names, [f"node{len(nodes)}"]))
        return f"node{len(nodes) - 1}"

    if not theta:
        forecast = node("Identity", "score")
    else:
        f = node("Clip", "score", numbers["clip"], 1.0 - numbers["clip"])
        rest = node("Sub", 1.0, f)
        if len(theta) == 3:
            z = node("Add", node("Mul", theta[0], node("Log", f)), node("Mul", theta[1], node("Log", rest)))
        else:
            z = node("Mul", theta[0], node("Log", node("Div", f, rest)))
        forecast = node("Sigmoid", z if len(theta) == 1 else node("Add", z, theta[-1]))
    # Outside [0, 1], as for NaN, there is no forecast; Clip would make one.
    inside = node("And", node("GreaterOrEqual", "score", 0.0), node("LessOrEqual", "score", 1.0))
    nodes.append(helper.make_node("Where", [inside, forecast, node("Identity", math.nan)], ["forecast"]))
    ends = [helper.make_tensor_value_info(name, TensorProto.DOUBLE, ["events"]) for name in ("score", "forecast")]
    graph = helper.make_graph(nodes, "calibeat", ends[:1], ends[1:], list(constants.values()))
    # An old opset and format on purpose: every runtime of the last years reads them.
    model = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8, producer_name="calibeat"
    )
    checker.check_model(model)
    return bytes(model.SerializeToString())
