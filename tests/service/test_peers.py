"""The private line between workers: whole messages, whatever pieces they come in."""

from __future__ import annotations

import asyncio
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from calibeat.service.operations import ForecastEvent, OutcomeEvent, Refusal
from calibeat.service.peers import Guest, Line, Peer


def test_questions_and_answers_go_together() -> None:
    asked: list[tuple[Any, list[Any]]] = []
    heard: list[list[tuple[Any, Any]]] = []
    guests: set[Guest] = set()

    def submit(ticket: Any, events: list[Any]) -> None:
        if events[0].id == "bad":
            raise Refusal("full", "no room", None, 503)
        asked.append((ticket, events))

    async def talk(path: str) -> None:
        loop = asyncio.get_running_loop()
        server = await loop.create_unix_server(lambda: Guest(submit, guests), path)
        lost: list[Peer] = []
        peer = Peer(heard.append, lost.append)
        peer.ask("a", [ForecastEvent("paris", "e1", 0.1), ForecastEvent("rome", "é", 0.2, 5.0)])
        await peer.connect(path)
        peer.ask("b", [OutcomeEvent("paris", "e1", 1)])
        peer.ask("c", [OutcomeEvent("paris", "bad", 1)])
        await until(lambda: len(asked) == 2 and heard)
        assert asked[0][1] == [ForecastEvent("paris", "e1", 0.1), ForecastEvent("rome", "é", 0.2, 5.0)]
        assert asked[1][1] == [OutcomeEvent("paris", "e1", 1)]
        assert [(ticket, answer.code, answer.status) for ticket, answer in heard.pop()] == [("c", "full", 503)]
        for ((guest, number), _), answer in zip(asked, ([0.1, 0.3], ["learnt"]), strict=True):
            guest.answer(number, answer)
        (guest,) = guests
        assert guest.waiting == 0
        guest.flush()  # both in one message
        await until(lambda: heard)
        assert heard == [[("a", [0.1, 0.3]), ("b", ["learnt"])]] and not peer.asked
        peer.ask("d", [OutcomeEvent("paris", "e1", 1)])
        guest.close()
        await until(lambda: lost)
        assert lost == [peer] and list(peer.asked.values()) == ["d"] and not guests
        server.close()
        nobody = Peer(heard.append, lost.append)
        await nobody.connect(path + "-nobody")
        assert nobody.is_lost and lost[-1] is nobody
        nobody.close()

    with TemporaryDirectory() as folder:
        asyncio.run(talk(f"{folder}/a"))


async def until(condition: Any) -> None:
    async with asyncio.timeout(30):
        while not condition():  # noqa: ASYNC110 - whatever it is that comes true
            await asyncio.sleep(0.001)


def test_messages_come_in_any_pieces() -> None:
    class Kept(Line):
        def __init__(self) -> None:
            super().__init__()
            self.messages: list[bytes] = []

        def take(self, message: bytes) -> None:
            self.messages.append(message)

    sent = b"\x00\x00\x00\x03abc\x00\x00\x00\x00\x00\x00\x00\x02de"
    for size in (1, 2, 5, 100):
        line = Kept()
        for first in range(0, len(sent), size):
            line.data_received(sent[first : first + size])
        assert line.messages == [b"abc", b"", b"de"]
    with pytest.raises(NotImplementedError):
        Line().data_received(sent)
