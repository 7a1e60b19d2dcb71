"""Ids of batches that go to several owners: what is taken is found before anything is done."""

from __future__ import annotations

import queue

import pytest
from postgres import Postgres
from services import desk

from calibeat.service.ids import Checked, IdCheck
from calibeat.service.operations import ForecastEvent


def test_ids_that_are_taken(server: Postgres) -> None:
    url, done = server.database(), queue.SimpleQueue[Checked]()
    with desk(url) as service:
        service.ask(("paris", "e1", 0.5), ("rome", "e2", 0.5))
    ids = IdCheck(url, done.put)
    ids.check("same", [ForecastEvent("paris", "e1", 0.5), ForecastEvent("paris", "e3", 0.5)])
    ids.check("other score", [ForecastEvent("paris", "e3", 0.5), ForecastEvent("paris", "e1", 0.6)])
    ids.check("other stream", [ForecastEvent("paris", "e2", 0.5)])
    ids.check("itself", [ForecastEvent("paris", "e9", 0.5), ForecastEvent("rome", "e9", 0.5)])
    ids.start()
    found = {ticket: refusal and (refusal.status, refusal.at) for ticket, refusal in done.get(timeout=60)}
    assert found == {"same": None, "other score": (409, 1), "other stream": (409, 0), "itself": (409, 1)}
    ids.stop()


def test_a_store_that_does_not_answer(server: Postgres, caplog: pytest.LogCaptureFixture) -> None:
    url, done = server.database(), queue.SimpleQueue[Checked]()
    with desk(url):
        pass
    ids = IdCheck(url, done.put)
    ids.start()
    event = ForecastEvent("paris", "e1", 0.5)
    ids.check(0, [event])
    assert done.get(timeout=60) == [(0, None)]
    ids._connection.close()  # as if the database had been restarted
    ids.check(1, [event])
    ((ticket, refusal),) = done.get(timeout=60)
    assert ticket == 1 and refusal is not None and (refusal.code, refusal.status) == ("unavailable", 503)
    ids.check(2, [event])
    assert done.get(timeout=60) == [(2, None)]
    ids.stop()
    assert "ids could not be looked up" in caplog.text
