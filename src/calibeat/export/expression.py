"""Formulas as data: a map from a score to a forecast as named steps, printed as Python, SQL or JSON.

An expression is a number, a name, or a tuple that begins with an operator:

==============================  =====================================================================================
``("+", a, b, ...)``            also ``-`` and ``/`` of two, ``*`` of several
``("ln", a)``, ``("exp", a)``
``("clamp", a, low, high)``     a, but no less than low and no more than high
``("if<", a, b, yes, no)``      yes where a < b, else no; also ``if<=`` and ``if>=``
``("lookup", name, edges,       the i-th value, where i edges are <= name: the bins of a histogram
values)``
``("interpolate", name,         the line through the values at 0, 1, ..., at the place that name says: clamped to
values)``                       the ends
==============================  =====================================================================================
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

Expression = Any  # float | str | tuple[str, ...]: recursive, which says nothing to a reader
Steps = Sequence[tuple[str, Expression]]

FLAT = 1000  # characters of SQL up to which steps are written into one another
SCORE = "CAST(score AS DOUBLE PRECISION)"


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
    for name, expression in steps:
        lines += [f"    {line}" for line in _python_step(name, expression)]
    return "\n".join([*lines, f"    return {steps[-1][0]}", ""])


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
    """Without the brackets that surround the whole: whoever starts with one was put in brackets whole."""
    return text[1:-1] if text.startswith("(") else text


# ---- SQL ---------------------------------------------------------------------------------------------------------


def to_sql(steps: Steps) -> str:
    """An expression of a column named ``score``; NULL where that is NULL or outside [0, 1].

    The column may hold text, decimals or whole numbers: it is cast, or databases would compare text with text. SQLite
    casts any text to a number, and compares the number with the text as numbers only if it is one: hence the last test.
    """
    flat = _flat_sql(steps)
    guard = f"{SCORE} >= 0 AND {SCORE} <= 1 AND {SCORE} = score"
    return f"CASE WHEN {guard} THEN {_stepwise_sql(steps) if flat is None else flat} END"


def _flat_sql(steps: Steps) -> str | None:
    """The steps written into one another; None if that is long, or a table would be looked up in a whole formula."""
    texts = {"score": SCORE}
    for name, expression in steps:
        if isinstance(expression, tuple) and expression[0] in {"lookup", "interpolate"} and expression[1] != "score":
            return None
        texts[name] = _sql(expression, texts)
        if len(texts[name]) > FLAT and expression[0] != "lookup":
            return None
    return texts[steps[-1][0]]


def _stepwise_sql(steps: Steps) -> str:
    """A common table expression of one row for each step: what is needed twice is computed once.

    MATERIALIZED, or SQLite writes the steps into one another after all, and runs out of memory.
    """
    *before, (_, result) = steps
    tables, known, source = [], "", ""
    for name, expression in before:
        text = _sql(expression, {"score": SCORE})
        tables.append(f"step_{name} AS MATERIALIZED (SELECT {known}{text} AS {name}{source})")
        known, source = f"{known}{name}, ", f" FROM step_{name}"
    return f"(WITH {', '.join(tables)} SELECT {_sql(result, {'score': SCORE})}{source})"


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


# ---- JSON --------------------------------------------------------------------------------------------------------


def to_json(steps: Steps, numbers: dict[str, Any]) -> str:
    """The numbers, and the steps in order, each ``[name, expression]``; the last one is the forecast."""
    data = {"format": "calibeat/map", "version": 1, "input": "score", "domain": [0, 1], "numbers": numbers}
    return json.dumps({**data, "steps": steps}, allow_nan=False)
