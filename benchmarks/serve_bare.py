"""The bare service: Starlette, msgspec and a Bank in memory. What it costs to be durable is measured against it."""

from __future__ import annotations

import math
import sys

import msgspec
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from calibeat.bank.bank import Bank
from calibeat.service.setup import warm
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


async def forecasts(request: Request) -> Response:
    """Forecasts of a bank in memory; the receipts are thrown away."""
    events, single = read_forecasts(await request.body(), 10_000)
    if single:  # what is fastest for one
        event = events[0]
        return _answer(ForecastAnswer(event.stream, event.id, bank.predict(event.stream, event.score).probability))
    made = bank.fold([e.stream for e in events], [e.score for e in events], [math.nan] * len(events))
    answers = [ForecastAnswer(e.stream, e.id, p) for e, p in zip(events, made.forecasts.tolist(), strict=True)]
    return _answer(ForecastAnswers(answers))


async def outcomes(request: Request) -> Response:
    """Outcomes are read and answered; nothing is learnt."""
    events, single = read_outcomes(await request.body(), 10_000)
    answers = [OutcomeAnswerOfMany(e.stream, e.id, "learnt") for e in events]
    return _answer(OutcomeAnswer("learnt") if single else OutcomeAnswers(answers))


def _answer(content: object) -> Response:
    return Response(_encode(content), media_type="application/json")


app = Starlette(
    routes=[Route("/v1/forecasts", forecasts, methods=["POST"]), Route("/v1/outcomes", outcomes, methods=["POST"])]
)

if __name__ == "__main__":
    warm(bank)
    uvicorn.run(app, port=int(sys.argv[1]), access_log=False, log_level="warning")
