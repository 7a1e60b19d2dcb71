"""The bare service: Starlette, msgspec and a Bank in memory. What it costs to be durable is measured against it.

`python -m benchmarks.serve_bare PORT` answers outcomes and learns nothing. With the word `learn` behind it, receipts
are kept in a dictionary and outcomes are learnt, as the service does, but nothing is stored and no repeat is noticed.
"""

from __future__ import annotations

import math
import sys
from typing import Any

import msgspec
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from calibeat.hosts.bank import Bank
from calibeat.service.wire import (
    ForecastAnswer,
    ForecastAnswers,
    OutcomeAnswer,
    OutcomeAnswerOfMany,
    OutcomeAnswers,
    read_forecasts,
    read_outcomes,
)

_encode = msgspec.json.Encoder().encode
bank = Bank("tops", 0)
learns = "learn" in sys.argv
receipts: dict[str, Any] = {}


async def forecasts(request: Request) -> Response:
    """Forecasts of a bank in memory."""
    events, single = read_forecasts(await request.body(), 10_000)
    if single:  # what is fastest for one
        event = events[0]
        forecast = bank.predict(event.stream, event.score)
        if learns:
            receipts[event.id] = forecast
        return _answer(ForecastAnswer(event.stream, event.id, forecast.probability))
    made = bank.fold([e.stream for e in events], [e.score for e in events], [math.nan] * len(events))
    if learns:
        receipts.update(zip([e.id for e in events], made.receipts.tolist(), strict=True))
    answers = [ForecastAnswer(e.stream, e.id, p) for e, p in zip(events, made.forecasts.tolist(), strict=True)]
    return _answer(ForecastAnswers(answers))


async def outcomes(request: Request) -> Response:
    """Outcomes are answered, and learnt if this is asked for."""
    events, single = read_outcomes(await request.body(), 10_000)
    if learns:
        known = [(e, receipts.pop(e.id)) for e in events if e.id in receipts]
        if single and known:
            bank.update(known[0][0].stream, known[0][1], known[0][0].outcome)
        elif known:
            keys, told = [e.stream for e, _ in known], [float(e.outcome) for e, _ in known]
            bank.fold(keys, [math.nan] * len(known), told, [receipt for _, receipt in known])
    answers = [OutcomeAnswerOfMany(e.stream, e.id, "learnt") for e in events]
    return _answer(OutcomeAnswer("learnt") if single else OutcomeAnswers(answers))


def _answer(content: object) -> Response:
    return Response(_encode(content), media_type="application/json")


app = Starlette(
    routes=[Route("/v1/forecasts", forecasts, methods=["POST"]), Route("/v1/outcomes", outcomes, methods=["POST"])]
)

if __name__ == "__main__":
    uvicorn.run(app, port=int(sys.argv[1]), access_log=False, log_level="warning")
