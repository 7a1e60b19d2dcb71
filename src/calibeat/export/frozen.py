"""The current map from score to forecast, frozen, for places where calibeat does not run."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from calibeat.core.formula import Formula
from calibeat.core.layout import CELLS
from calibeat.core.method import name_of
from calibeat.errors import InvalidInput, MissingExtra

from . import expression
from .expression import Expression

if TYPE_CHECKING:
    from calibeat.stream.calibrator import Calibrator


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
    for part in (method.guard, calibeater, learner):
        if part is not None and part.no_formula:
            name = name_of(method)
            raise InvalidInput(f"export needs {part.no_formula.format(name.upper() if name else method)}")
    formula, exact = Formula(), calibeater is not None
    if features is None:
        formula.add("expert", "score")
    elif learner is None:
        features.export(formula, features.params(row), exact=exact)
    else:
        learner.export(formula, row, features, exact=exact)
    if calibeater is not None:
        calibeater.export(formula, row[int(method.spec[CELLS]) :], features)
    formula.steps[-1] = ("forecast", formula.steps[-1][1])
    return Export(formula.numbers, tuple(formula.steps))


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
