"""What is refused at the door, and with which words."""

from __future__ import annotations

from math import inf, nan
from typing import Any

import pytest

from calibeat.service.events import LATEST_TIME, ForecastEvent, OutcomeEvent, Refusal, check_events


@pytest.mark.parametrize("score", [0.0, 1.0, 0.5])
def test_good_events_pass(score: float) -> None:
    check_events([ForecastEvent("Paris é 東京", "x" * 200, score), ForecastEvent("a", "b", score, 0.0)])
    check_events([OutcomeEvent("a", "b", 1, LATEST_TIME), OutcomeEvent("a", "b", 0, 5)])


BAD: list[tuple[Any, str]] = [
    (ForecastEvent("a", "b", 1.3), "score must be in [0, 1], got 1.3 - at event 1"),
    (ForecastEvent("a", "b", nan), "score must be in [0, 1], got nan - at event 1"),
    (ForecastEvent("a", "b", True), "score must be in [0, 1], got True"),
    (ForecastEvent("a", "b", "0.5"), "score must be in [0, 1], got '0.5'"),  # type: ignore[arg-type]
    (OutcomeEvent("a", "b", 2), "outcome must be 0 or 1, got 2"),
    (OutcomeEvent("a", "b", True), "outcome must be 0 or 1, got True"),
    (ForecastEvent("", "b", 0.5), "stream must be a text of 1 to 200 characters, got 0"),
    (ForecastEvent("a" * 201, "b", 0.5), "stream must be a text of 1 to 200 characters, got 201"),
    (ForecastEvent("a", "", 0.5), "id must be a text of 1 to 200 characters, got 0"),
    (ForecastEvent("a", 7, 0.5), "id must be a text of 1 to 200 characters, got 7"),  # type: ignore[arg-type]
    (ForecastEvent("a", "b\x00", 0.5), "id must be text without control characters, got 'b\\x00'"),
    (ForecastEvent("a\n", "b", 0.5), "stream must be text without control characters"),
    (ForecastEvent("a\ud800", "b", 0.5), "stream must be text without control characters"),
    (ForecastEvent("a", "b", 0.5, -1.0), "time must be in seconds since 1970"),
    (ForecastEvent("a", "b", 0.5, inf), "time must be in seconds since 1970"),
    (OutcomeEvent("a", "b", 1, nan), "time must be in seconds since 1970"),
    ("event", "event must be a forecast or an outcome, got str"),
]


@pytest.mark.parametrize(("event", "sentence"), BAD)
def test_bad_events_are_named(event: Any, sentence: str) -> None:
    with pytest.raises(Refusal) as caught:
        check_events([ForecastEvent("a", "b", 0.5), event])
    assert str(caught.value).startswith(sentence)
    assert (caught.value.code, caught.value.at, caught.value.status) == ("invalid", 1, 400)
