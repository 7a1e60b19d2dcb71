"""A calibrator's present map from scores to forecasts, frozen, in other languages.

`Export` takes one score, `SeveralExport` the scores of several models, and `MultiExport` those of K classes.

The map of two classes is a formula as data: named steps, printed as Python, SQL or JSON. An expression is a number, a
name, or a tuple that begins with an operator::

    ("+", a, b, ...)                     also - and / of two, * of several
    ("ln", a), ("exp", a)
    ("clamp", a, low, high)              a, but no less than low and no more than high
    ("if<", a, b, yes, no)               yes where a < b, else no; also if<= and if>=
    ("lookup", name, edges, values)      the i-th value, where i edges are <= name: the bins of a histogram
    ("interpolate", name, values)        the line through the values at 0, 1, ..., at the place that name says:
                                         clamped to the ends
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from calibeat._util.extras import need
from calibeat.core.auto import EPS, LARGEST, MOST_LANE_LOGIT, MOST_SCORE_LOGIT
from calibeat.core.method import AUTO, name_of
from calibeat.core.parts import LARGEST_EXPONENT, Expression, Formula, sigmoid_of
from calibeat.core.several import AUTO_CLIP, LANE_NAMES, parts_of
from calibeat.core.weights import scale_of_weights

from .errors import InvalidInput

if TYPE_CHECKING:
    from calibeat._util.types import Vector
    from calibeat.core.method import Method

Steps = Sequence[tuple[str, Expression]]

LONGEST_FLAT_SQL = 1000  # characters of SQL up to which steps are written into one another


# ---- Python ------------------------------------------------------------------------------------------------------


def to_python(steps: Steps) -> str:
    """A function ``calibrate(score)`` that needs nothing but `math`."""
    lines = [
        "import math",
        "",
        "",
        "def calibrate(score):",
        '    """The forecast of a score in [0, 1]."""',
        "    if not 0.0 <= score <= 1.0:",
        '        raise ValueError(f"score must be in [0, 1], got {score!r}")',
    ]
    return "\n".join([*lines, *_python_body(steps)])


def _python_body(steps: Steps) -> list[str]:
    lines = [f"    {line}" for name, expression in steps for line in _python_step(name, expression)]
    return [*lines, f"    return {steps[-1][0]}", ""]


def _python_step(name: str, expression: Expression) -> list[str]:
    match expression:
        case ("lookup", variable, edges, values):
            rows = zip([*edges, math.inf], values, strict=True)
            return [
                f"for edge, {name} in (",
                *(f"    ({_python(edge)}, {_python(value)})," for edge, value in rows),
                "):",
                f"    if {variable} < edge:",
                "        break",
            ]
        case ("interpolate", place, values):
            return [
                f"knots = ({', '.join(map(_python, values))})",
                f"left = min(max(int({place}), 0), {len(values) - 2})",
                f"share = min(max({place} - left, 0.0), 1.0)",
                f"{name} = (1.0 - share) * knots[left] + share * knots[left + 1]",
            ]
    return [f"{name} = {_bare(_python(expression))}"]


def _python(expression: Expression) -> str:
    match expression:
        case float():
            return repr(expression) if math.isfinite(expression) else "math.inf"
        case str():
            return expression
        case ("ln", inner):
            return f"math.log({_bare(_python(inner))})"
        case ("exp", inner):
            return f"math.exp({_bare(_python(inner))})"
        case ("clamp", inner, low, high):
            return f"min(max({_python(inner)}, {_python(low)}), {_python(high)})"
        case ("if<" | "if<=" | "if>=" as test, left, right, yes, no):
            return f"({_python(yes)} if {_python(left)} {test[2:]} {_python(right)} else {_python(no)})"
        case (operator, *parts):
            return "(" + f" {operator} ".join(map(_python, parts)) + ")"
    raise AssertionError(expression)  # pragma: no cover - the builders make nothing else


def _bare(text: str) -> str:
    """Without the outer brackets. A text that starts with a bracket also ends with its partner."""
    return text[1:-1] if text.startswith("(") else text


# ---- SQL ---------------------------------------------------------------------------------------------------------


def to_sql(steps: Steps, column: str = "score") -> str:
    """An expression of a column; NULL where that is NULL or outside [0, 1].

    The column may hold text, decimals or whole numbers: it is cast, or databases would compare text with text. SQLite
    casts any text to a number, and compares the number with the text as numbers only if it is one: hence the last test.
    """
    score = _as_double(column)
    texts = {"score": score}
    flat = _flat_sql(steps, texts)
    guard = f"{score} >= 0 AND {score} <= 1 AND {score} = {column}"
    return f"CASE WHEN {guard} THEN {_stepwise_sql(steps, texts) if flat is None else flat} END"


def _as_double(column: str) -> str:
    return f"CAST({column} AS DOUBLE PRECISION)"


def _flat_sql(steps: Steps, texts: dict[str, str]) -> str | None:
    """The steps written into one another; None if that is long, or a table would be looked up in a whole formula."""
    texts = dict(texts)
    for name, expression in steps:
        kind = expression[0] if isinstance(expression, tuple) else ""
        if kind in {"lookup", "interpolate"} and expression[1] != "score":  # type: ignore[index]  # it is a tuple
            return None
        texts[name] = _sql(expression, texts)
        if len(texts[name]) > LONGEST_FLAT_SQL and kind != "lookup":
            return None
    return texts[steps[-1][0]]


def _stepwise_sql(
    steps: Steps, texts: dict[str, str], given: Sequence[str] = (), known: str = "", source: str = ""
) -> str:
    """A common table expression of one row for each step: what is needed twice is computed once.

    MATERIALIZED, or SQLite writes the steps into one another after all, and runs out of memory. The first step may read
    columns that are `known` from a `source`, tables that are `given`.
    """
    *before, (_, result) = steps
    tables = list(given)
    for name, expression in before:
        text = _sql(expression, texts)
        tables.append(f"step_{name} AS MATERIALIZED (SELECT {known}{text} AS {name}{source})")
        known, source = f"{known}{name}, ", f" FROM step_{name}"
    return f"(WITH {', '.join(tables)} SELECT {_sql(result, texts)}{source})"


def _sql(expression: Expression, texts: dict[str, str]) -> str:
    def sql(inner: Expression) -> str:
        return _sql(inner, texts)

    match expression:
        case float():
            text = repr(expression)
            return text if "e" in text else text + "e0"  # DuckDB takes 0.1 for a decimal, and 0.1e0 for a double
        case str():
            return texts.get(expression, expression)
        case ("ln" | "exp" as function, inner):
            return f"{function}({_bare(sql(inner))})"
        case ("clamp", inner, low, high):
            text, least, most = sql(inner), sql(low), sql(high)
            return f"CASE WHEN {text} < {least} THEN {least} WHEN {text} > {most} THEN {most} ELSE {text} END"
        case ("if<" | "if<=" | "if>=" as test, left, right, yes, no):
            return f"CASE WHEN {sql(left)} {test[2:]} {sql(right)} THEN {sql(yes)} ELSE {sql(no)} END"
        case ("lookup", variable, edges, values):
            *arms, last = values
            whens = [f" WHEN {sql(variable)} < {sql(e)} THEN {sql(v)}" for e, v in zip(edges, arms, strict=True)]
            return f"CASE{''.join(whens)} ELSE {sql(last)} END" if whens else sql(last)
        case ("interpolate", place, values):
            return _sql_line(place, [sql(value) for value in values])
        case (operator, *parts):
            return "(" + f" {operator} ".join(map(sql, parts)) + ")"
    raise AssertionError(expression)  # pragma: no cover - the builders make nothing else


def _sql_line(place: str, values: list[str]) -> str:
    whens = [
        f" WHEN {place} < {i + 1}e0 THEN ({i + 1}e0 - {place}) * {values[i]} + ({place} - {i}e0) * {values[i + 1]}"
        for i in range(len(values) - 1)
    ]
    return f"CASE WHEN {place} < 0e0 THEN {values[0]}{''.join(whens)} ELSE {values[-1]} END"


# ---- what a user gets ---------------------------------------------------------------------------------------------


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
    json : the numbers and the formula, step by step; the module lists its operators.
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
        return to_python(self.steps)

    @property
    def sql(self) -> str:
        """A SQL expression of a column ``score``."""
        return to_sql(self.steps)

    @property
    def json(self) -> str:
        """The numbers, and the steps in order, each ``[name, expression]``; the last one is the forecast."""
        data = {"format": "calibeat/map", "version": 1, "input": "score", "domain": [0, 1], "numbers": self.numbers}
        return json.dumps({**data, "steps": self.steps}, allow_nan=False)

    def onnx(self) -> bytes:
        """An ONNX model of the scaling: input ``score``, output ``forecast``, vectors of doubles of any length.

        NaN where the score is NaN or outside [0, 1]. Floats of single precision must be cast to doubles before, and a
        column of shape (n, 1) made a vector: runtimes refuse them.

        Raises
        ------
        InvalidInput : the method does more than scale.
        MissingExtra : the package onnx is not installed.
        """
        return _onnx(self.numbers)


def frozen_map(method: Method, row: list[float]) -> Export:
    """See `Calibrator.export`."""
    row = row[: method.plain_width]
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
        calibeater.export(formula, row[method.spec.cells :], features, scale_of_weights(row))  # type: ignore[arg-type]
    if method.odds != 1.0:  # between the score and the forecast all is in the odds of the log
        formula.numbers.update(odds=method.odds)
        formula.steps = [(name, _reading("seen", step)) for name, step in formula.steps]
        formula.steps.insert(0, ("seen", _in_odds("score", method.odds)))
        said = formula.steps[-1][0]
        formula.add("true", ("/", said, ("+", said, ("*", ("-", 1.0, said), method.odds))))
    formula.steps[-1] = ("forecast", formula.steps[-1][1])
    return Export(formula.numbers, tuple(formula.steps))


def _in_odds(p: str, odds: float) -> Expression:
    """A probability in odds that are so many times larger, as `core.weights.in_log` has it."""
    return ("/", ("*", p, odds), ("+", ("*", p, odds), ("-", 1.0, p)))


def _reading(name: str, step: Expression) -> Expression:
    """An expression that reads this name in place of the score."""
    if isinstance(step, tuple):
        return (step[0], *(_reading(name, part) if not isinstance(part, list) else part for part in step[1:]))
    return name if step == "score" else step


# ---- the scores of several models ---------------------------------------------------------------------------------

_SEVERAL = '''

def calibrate(scores):
    """The forecast of complete scores in [0, 1]: in the order of MODELS, or a dict by name."""
    if isinstance(scores, dict):
        scores = [scores.get(name) for name in MODELS]
    if len(scores) != len(MODELS):
        raise ValueError(f"scores must be {len(MODELS)}, got {len(scores)}")
    for name, score in zip(MODELS, scores):
        if score is None or score != score:
            raise ValueError(f"an exported map needs all scores, {name!r} is missing - use Calibrator.predict")
        if not 0.0 <= score <= 1.0:
            raise ValueError(f"score must be in [0, 1], got {score!r} of {name!r}")
'''


@dataclass(frozen=True)
class SeveralExport:
    """What `Calibrator.export` gives with ``models=``: the present map of complete scores, as numbers and as text.

    A formula for each model calibrates its score, and one formula makes the forecast of their results.

    Attributes
    ----------
    models : the names of the models.
    parts : an `Export` for each model.
    together : the last formula, of ``score_0``, ``forecast_0``, ``score_1``, ``forecast_1``, ...
    numbers : the numbers of the parts by name (``"scores"``), and of the last formula (``"together"``).
    python : source of a function ``calibrate(scores)``, which needs `math` and nothing else. It takes the scores in the
        order of the models, or a dict by name, and refuses a missing one.
    sql : an expression of columns that have the names of the models; NULL where a score is NULL or outside [0, 1].
    json : the numbers and the formulas, step by step; the module lists their operators.

    Each agrees with `Calibrator.predict_many` to 1e-12. Nothing is learnt in a copy: export again when the stream has
    moved. There is no ONNX.

    >>> from calibeat import Calibrator
    >>> cal = Calibrator(models=["champion", "challenger"])
    >>> p = cal.run([[0.8, 0.6], [0.3, 0.1]] * 20, [1, 0] * 20)
    >>> space = {}
    >>> exec(cal.export().python, space)
    >>> abs(space["calibrate"]([0.8, 0.6]) - float(cal.predict([0.8, 0.6]))) < 1e-12
    True
    """

    models: tuple[str, ...]
    parts: tuple[Export, ...]
    together: Formula

    @property
    def numbers(self) -> dict[str, Any]:
        """The numbers of all formulas."""
        scores = {name: part.numbers for name, part in zip(self.models, self.parts, strict=True)}
        return {"scores": scores, "together": self.together.numbers}

    @property
    def python(self) -> str:
        """A Python function ``calibrate(scores)``."""
        lines = ["import math", "", f"MODELS = {self.models!r}"]
        for j, part in enumerate(self.parts):
            lines += ["", "", f"def _calibrate_{j}(score):", *_python_body(part.steps)[:-1]]
        calls = [
            text
            for j in range(len(self.parts))
            for text in (f"    score_{j} = float(scores[{j}])", f"    forecast_{j} = _calibrate_{j}(score_{j})")
        ]
        return "\n".join([*lines, _SEVERAL.rstrip(), *calls, *_python_body(self.together.steps)])

    @property
    def sql(self) -> str:
        """A SQL expression of columns that have the names of the models."""
        tables, known = [], ""
        for j, (name, part) in enumerate(zip(self.models, self.parts, strict=True)):
            column, given = '"' + name.replace('"', '""') + '"', f"calibeat_{j}"  # no step has a name like that
            score, forecast = f"{_as_double(given)} AS score_{j}", f"{to_sql(part.steps, given)} AS forecast_{j}"
            there = f" FROM given_{j}"
            tables.append(f"given_{j} AS MATERIALIZED (SELECT {column} AS {given})")
            tables.append(f"model_{j} AS MATERIALIZED (SELECT {score}, {forecast}{there})")
            known += f"score_{j}, forecast_{j}, "
        source = " FROM " + ", ".join(f"model_{j}" for j in range(len(self.parts)))
        return _stepwise_sql(self.together.steps, {}, tables, known, source)  # NULL where a forecast is

    @property
    def json(self) -> str:
        """The numbers, and the steps of each formula in order; the last one reads ``score_j`` and ``forecast_j``."""
        parts = [{"model": name, "steps": part.steps} for name, part in zip(self.models, self.parts, strict=True)]
        data = {"format": "calibeat/several-map", "version": 1, "inputs": self.models, "domain": [0, 1]}
        return json.dumps(
            {**data, "numbers": self.numbers, "parts": parts, "steps": self.together.steps}, allow_nan=False
        )

    def onnx(self) -> bytes:
        """Refused: ONNX is for methods that only scale."""
        raise InvalidInput("onnx needs a method that only scales, got several models - use Python, SQL or JSON")


def frozen_maps(names: Sequence[str], row: Vector) -> SeveralExport:
    """See `Calibrator.export`."""
    k = len(names)
    parts = parts_of(row, k)
    scores = tuple(frozen_map(AUTO, row.tolist()) for row in parts.autos)
    weights, spline, knots = parts.weights.tolist(), parts.spline_weights.tolist(), parts.offsets.tolist()
    lanes = {name: theta[: 2 * k + 1].tolist() for name, theta in zip(LANE_NAMES, parts.theta, strict=True)}
    formula = Formula({"weight": weights, **lanes, "spline_weight": spline, "expert_knots": knots})
    for j in range(k):
        formula.add(f"z{j}", ("clamp", _logit(f"forecast_{j}"), -MOST_LANE_LOGIT, MOST_LANE_LOGIT))
    for j in range(k):
        formula.add(f"f{j}", ("clamp", f"score_{j}", AUTO_CLIP, 1.0 - AUTO_CLIP))
        formula.add(f"x{j}", ("clamp", _logit(f"f{j}"), -MOST_SCORE_LOGIT, MOST_SCORE_LOGIT))
    phi = [f"{letter}{j}" for letter in "zx" for j in range(k)]  # no score is missing: the indicators are 0
    for name, (constant, *slopes) in lanes.items():
        logit = ("+", constant, *(("*", slope, x) for slope, x in zip(slopes, phi, strict=True)))
        formula.add(f"{name}_logit", ("clamp", logit, -LARGEST_EXPONENT, LARGEST_EXPONENT))
        formula.add(name, ("clamp", sigmoid_of(f"{name}_logit"), EPS, LARGEST))
    says = [*(f"forecast_{j}" for j in range(k)), *lanes]
    mean = ("+", *(("*", weight / math.fsum(weights), name) for weight, name in zip(weights, says, strict=True)))
    formula.add("m", ("clamp", mean, EPS, LARGEST))
    formula.add("tenths", ("*", "m", 10.0))
    formula.add("bend", ("interpolate", "tenths", knots))
    formula.add("t", ("/", "m", ("+", "m", ("*", ("-", 1.0, "m"), ("exp", ("-", 0.0, "bend"))))))
    formula.add("corrected", ("clamp", "t", EPS, LARGEST))
    forecast = ("+", ("*", spline[0], "m"), ("*", spline[1], "corrected"))
    formula.add("forecast", ("clamp", forecast, EPS, LARGEST))
    return SeveralExport(tuple(names), scores, formula)


def _logit(p: str) -> Expression:
    return ("ln", ("/", p, ("-", 1.0, p)))


# ---- ONNX --------------------------------------------------------------------------------------------------------


def _onnx(numbers: dict[str, Any]) -> bytes:
    """The graph of sigmoid(theta . x); doubles, for 1 - f of a float near 1 has too few digits left."""
    theta = [numbers[name] for name in ("a", "b", "c") if name in numbers]
    if set(numbers) - {"a", "b", "c", "clip"}:
        raise InvalidInput(
            f"onnx needs a method that only scales (such as OPS or OBS), got one with {', '.join(numbers)} - "
            "export it without its calibeater, or as Python, SQL or JSON"
        )
    onnx = need("onnx", "onnx", "ONNX models")
    helper, double = onnx.helper, onnx.TensorProto.DOUBLE
    nodes: list[Any] = []
    constants: dict[str, Any] = {}

    def node(operator: str, *inputs: str | float) -> str:
        names = []
        for value in inputs:
            if not isinstance(value, str):
                name = f"number{len(constants)}"
                constants[name] = helper.make_tensor(name, double, [], [value])
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
    ends = [helper.make_tensor_value_info(name, double, ["events"]) for name in ("score", "forecast")]
    graph = helper.make_graph(nodes, "calibeat", ends[:1], ends[1:], list(constants.values()))
    # An old opset and format on purpose: every runtime of the last years reads them.
    model = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8, producer_name="calibeat"
    )
    onnx.checker.check_model(model)
    return bytes(model.SerializeToString())


# ---- many classes ----------------------------------------------------------------------------------------------------

_READ = '''def calibrate(scores):
    """K scores in, K probabilities out."""
    if len(scores) != K or not all(-1e300 < s < 1e300 for s in scores):
        raise ValueError(f"scores must be {K} finite numbers")
    if LOGITS:
        scores = _softmax(list(scores))
    elif min(scores) < 0.0 or abs(sum(scores) - 1.0) > 1e-6:
        raise ValueError("scores must be 0 or more and sum to 1")
    total = math.fsum(scores)
    scores = [s / total for s in scores]
    g = [max(s, FLOOR) for s in scores]
    total = math.fsum(g)
    f, x = [v / total for v in g], [math.log(v) for v in g]
'''

_MULTI = """    u = [1.0 if s <= FLOOR else 0.0 for s in scores]
    o = _softmax([SLOPE * v for v in x])
    m = [LANE_WEIGHTS[4] * f[k] + LANE_WEIGHTS[5] * o[k] for k in range(K)]
    columns = [x]
    for (a, c, d), b, w in zip(SHARED, BIASES, LANE_WEIGHTS):
        z = [a * x[k] + c * f[k] + d * u[k] + b[k] for k in range(K)]
        e = _softmax(z)
        m = [m[k] + w * e[k] for k in range(K)]
        columns.insert(-1, z)
    if HORIZON:
        phi = [[max(v - max(column), -8.0) for v in column] for column in columns]
        h = _softmax([math.fsum(n * column[k] for n, column in zip(HORIZON, phi)) for k in range(K)])
        m = [m[k] + LANE_WEIGHTS[6] * (h[k] + FLOOR) / (1.0 + K * FLOOR) for k in range(K)]
    s = _normalised([m[k] * _interpolated(KNOTS, FACTORS[k], m[k]) for k in range(K)])
    stages = [m, s]
    if CONFUSION:
        kappa = CONFUSION[max(range(K), key=lambda k: scores[k])]
        stages.append(_normalised([s[k] * kappa[k] for k in range(K)]))
    c = [math.fsum(v * stage[k] for v, stage in zip(STAGE_WEIGHTS, stages)) for k in range(K)]
    i = max(range(K), key=lambda k: c[k])
    rest = math.fsum(c[k] for k in range(K) if k != i)
    C, D = _inside(c[i] / (c[i] + rest)), _inside(rest / (c[i] + rest))
    odds = D * math.exp(-_interpolated([k / 10 for k in range(11)], OFFSETS, C))
    t, t_rest = _inside(C / (C + odds)), _inside(odds / (C + odds))
    scale = (TOP_WEIGHTS[0] * D + TOP_WEIGHTS[1] * t_rest) / rest
    p = [v * scale for v in c]
    p[i] = TOP_WEIGHTS[0] * C + TOP_WEIGHTS[1] * t
    return [(GUARD_WEIGHTS[0] * p[k] + GUARD_WEIGHTS[1] * o[k] + FLOOR) / (1.0 + K * FLOOR) for k in range(K)]
"""

_HELPERS = """

def _softmax(z):
    top = max(z)
    e = [math.exp(max(v - top, -700.0)) for v in z]
    total = math.fsum(e)
    return [v / total for v in e]


def _normalised(values):
    total = math.fsum(values)
    return [v / total for v in values]


def _inside(p):
    return min(max(p, FLOOR), 1.0 - FLOOR)


def _interpolated(knots, values, at):
    for j in range(1, len(knots)):
        if at <= knots[j] or j == len(knots) - 1:
            h = min((at - knots[j - 1]) / (knots[j] - knots[j - 1]), 1.0)
            return (1.0 - h) * values[j - 1] + h * values[j]
"""

_PAIR = '''

_of_the_second = calibrate


def calibrate(scores):
    """Two scores in, two probabilities out."""
    first, second = scores
    if LOGITS:
        first, second = (math.exp(s - max(scores)) for s in scores)
    elif min(scores) < 0.0 or abs(first + second - 1.0) > 1e-6:
        raise ValueError("scores must be 0 or more and sum to 1")
    p = _of_the_second(second / (first + second))
    return [1.0 - p, p]
'''


@dataclass(frozen=True)
class MultiExport:
    """What `MultiCalibrator.export` gives: the present map as numbers, and as text in Python and JSON.

    Attributes
    ----------
    numbers : the map as plain numbers, by name; `docs/multiclass.md` has the equations.
    python : source of a function ``calibrate(scores)``, which needs `math` and nothing else.
    json : the numbers, with the method and the classes.

    The Python source agrees with `MultiCalibrator.predict_many` to 1e-12. Nothing is learnt in a copy: export again
    when the stream has moved.

    >>> from calibeat import MultiCalibrator
    >>> cal = MultiCalibrator(3)
    >>> P = cal.run([[0.2, 0.5, 0.3], [0.1, 0.1, 0.8]] * 20, [0, 2] * 20)
    >>> space = {}
    >>> exec(cal.export().python, space)
    >>> ours, theirs = cal.peek([0.2, 0.5, 0.3]).tolist(), space["calibrate"]([0.2, 0.5, 0.3])
    >>> max(abs(p - q) for p, q in zip(ours, theirs)) < 1e-12
    True
    """

    numbers: dict[str, Any]
    classes: tuple[Any, ...]
    method: str
    logits: bool
    pair: str | None = None

    @property
    def python(self) -> str:
        """A Python function ``calibrate(scores)``."""
        if self.pair is not None:
            return f"{self.pair.rstrip()}\n\n\nLOGITS = {self.logits}\n{_PAIR}"
        constants = "".join(f"{name.upper()} = {value!r}\n" for name, value in self.numbers.items())
        body = {"raw": "    return f\n", "ots": "    return _softmax([SLOPE * v for v in x])\n", "multi": _MULTI}
        head = f"import math\n\nK, LOGITS, FLOOR = {len(self.classes)}, {self.logits}, {EPS!r}\n{constants}\n\n"
        return head + _READ + body[self.method] + _HELPERS

    @property
    def json(self) -> str:
        """The numbers, the method and the classes as JSON."""
        data = {"format": "calibeat/multi-map", "version": 1, "method": self.method, "classes": list(self.classes)}
        return json.dumps({**data, "logits": self.logits, "numbers": self.numbers})
