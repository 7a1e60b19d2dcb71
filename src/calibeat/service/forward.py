"""Events to the worker that owns their stream, answers back to the worker that was asked.

The router stands between the routes and the engine where workers own partitions. What this worker owns goes to its
engine; the rest goes to other workers (`peers`). A batch is split and put together again. While a partition has no
owner, or the line to it breaks, its events wait and are sent again with the same ids: nothing is done twice.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from calibeat.errors import InvalidInput

from .engine import Engine
from .group import Answer
from .ids import Checked, IdCheck
from .operations import ELSEWHERE, ForecastEvent, Refusal, elsewhere
from .peers import Guest, Peer
from .store.ownership import NOBODY, Ownership, partition

log = logging.getLogger("calibeat.service")
AGAIN = 0.05  # seconds until what waits for an owner is sent again
PATIENCE = 5.0  # seconds that it waits at most
Deliver = Callable[[list[tuple[Any, Answer]]], None]


class Whole:
    """A request, and what is known of its answer."""

    __slots__ = ("answers", "deadline", "events", "left", "refusal", "ticket")

    def __init__(self, ticket: Any, events: list[Any]) -> None:
        self.ticket, self.events = ticket, events
        self.answers: list[Any] = [None] * len(events)
        self.left = len(events)  # events without an answer
        self.refusal: Refusal | None = None
        self.deadline = 0.0


class Part:
    """The events of a request that go to one owner, by their places in it."""

    __slots__ = ("places", "whole")

    def __init__(self, whole: Whole, places: Sequence[int]) -> None:
        self.whole, self.places = whole, places

    def events(self) -> list[Any]:
        """What the owner is asked for."""
        whole = self.whole
        return whole.events if len(self.places) == len(whole.events) else [whole.events[at] for at in self.places]


class Router:
    """Takes requests as an engine does. Everything but `start` and `stop` happens on the loop."""

    def __init__(self, engine: Engine, store: str, folder: Path) -> None:
        assert engine.owner is not None  # noqa: S101 - it is for engines that own partitions
        self._engine, self._folder = engine, folder
        self._owner: Ownership = engine.owner
        self._ids = IdCheck(store, self._from_ids)
        self._listener = _listen(folder / f"{self._owner.number:x}")
        self._loop: asyncio.AbstractEventLoop | None = None
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[Any]] = set()
        self._deliver: Deliver = lambda _: None
        self._peers: dict[int, Peer] = {}
        self._guests: set[Guest] = set()
        self._requests = self._events = 0  # that are not answered
        self._waiting: list[Part] = []  # for an owner
        self._done: list[tuple[Any, Answer]] = []
        self._is_ending, self._is_idle = False, asyncio.Event()

    def start(self, loop: asyncio.AbstractEventLoop, deliver: Deliver) -> None:
        """Start the engine and listen to the other workers; `deliver` is called on the loop."""
        self._loop, self._deliver = loop, deliver
        self._spend(self._listen())
        self._owner.on_change = self._soon(self._send_again)
        self._ids.start()
        self._engine.start(self._from_engine)

    async def _listen(self) -> None:
        loop = asyncio.get_running_loop()
        guest = partial(Guest, self._from_guest, self._guests)
        self._server = await loop.create_unix_server(guest, sock=self._listener)

    async def finish(self) -> None:
        """Wait for the last answers, of our clients and of the other workers'; take nothing more from the others."""
        self._is_ending = True
        self._hand_out()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE):
                await self._is_idle.wait()
        for line in (*self._guests, *self._peers.values()):
            line.close()
        if self._server is not None:
            self._server.close()

    def stop(self) -> None:
        """Stop the engine, which gives all partitions away."""
        self._ids.stop()
        self._engine.stop()
        self._listener.close()
        (self._folder / f"{self._owner.number:x}").unlink(missing_ok=True)

    # ---- requests ---------------------------------------------------------------------------------------------------

    def submit(self, ticket: object, events: list[Any], *, checked: bool = False) -> None:
        """Take a request. Its events are checked already; a full queue is a `Refusal`."""
        assert checked  # noqa: S101 - HTTP checks while it reads
        settings = self._engine.settings
        if self._requests >= settings.queue or self._events >= settings.queue_events:
            raise Refusal("full", f"there must be room, got {self._events} events that wait - try again", None, 503)
        self._requests += 1
        self._events += len(events)
        whole, owners = Whole(ticket, events), self._owner.owners
        if len(events) > 1 and type(events[0]) is ForecastEvent:
            first = owners[partition(events[0].stream)]
            if any(owners[partition(event.stream)] != first for event in events):
                self._ids.check(whole, events)
                return
        self._send(whole, range(len(events)))
        self._hand_out()

    def _send(self, whole: Whole, places: Sequence[int]) -> None:
        """Send the events at these places to their owners."""
        owners, me = self._owner.owners, self._owner.number
        parts: dict[int, list[int]] = {}
        for at in places:
            parts.setdefault(owners[partition(whole.events[at].stream)], []).append(at)
        for owner, part in ((owner, Part(whole, found)) for owner, found in parts.items()):
            if owner == me:
                try:
                    self._engine.submit(part, part.events(), checked=True)
                except Refusal as refusal:
                    self._hear(part, refusal)
            elif owner == NOBODY:
                self._wait(part)
            else:
                self._engine.numbers.forwarded += len(part.places)
                self._peer(owner).ask(part, part.events())

    def _wait(self, part: Part) -> None:
        """Nobody owns it, or not the one who was asked: look, and ask again."""
        now = self._time()
        part.whole.deadline = part.whole.deadline or now + PATIENCE
        if now > part.whole.deadline:
            message = f"the stream must have an owner, got none in {PATIENCE:g} seconds - try again"
            self._hear(part, Refusal("handover", message, None, 503))
            return
        if not self._waiting and self._loop is not None:
            self._loop.call_later(AGAIN, self._send_again)
        self._waiting.append(part)
        self._engine.look()

    def _send_again(self) -> None:
        waiting, self._waiting = self._waiting, []
        for part in waiting:
            self._send(part.whole, part.places)
        self._hand_out()

    # ---- answers ----------------------------------------------------------------------------------------------------

    def _hear(self, part: Part, answer: Answer) -> None:
        """A part is answered. The last one completes the request."""
        whole = part.whole
        if isinstance(answer, Refusal):
            if answer.code == ELSEWHERE:
                self._wait(part)
                return
            refusal = _placed(answer, part.places)
            if whole.refusal is None or refusal.status < whole.refusal.status:  # what cannot succeed counts more
                whole.refusal = refusal
        elif len(part.places) == len(whole.events):
            whole.answers = answer
        else:
            for at, each in zip(part.places, answer, strict=True):
                whole.answers[at] = each
        whole.left -= len(part.places)
        if not whole.left:
            self._finished(whole)

    def _finished(self, whole: Whole) -> None:
        self._requests -= 1
        self._events -= len(whole.events)
        self._done.append((whole.ticket, whole.refusal or whole.answers))

    def _hand_out(self) -> None:
        if self._done:
            done, self._done = self._done, []
            self._deliver(done)
        if self._is_ending and not self._requests and not any(guest.waiting for guest in self._guests):
            self._is_idle.set()

    def _heard(self, answers: list[tuple[Any, Answer]]) -> None:
        """Answers of the engine or of another worker: for parts of our own requests, or for guests."""
        guests: set[Guest] = set()
        for ticket, answer in answers:
            if type(ticket) is Part:
                self._hear(ticket, answer)
            else:
                guest, number = ticket
                guest.answer(number, answer)
                guests.add(guest)
        for guest in guests:
            guest.flush()
        self._hand_out()

    def _from_engine(self, answers: list[tuple[Any, Answer]]) -> None:
        """Called on the thread of the engine."""
        if answers:
            self._soon(self._heard)(answers)

    # ---- other workers ----------------------------------------------------------------------------------------------

    def _from_guest(self, ticket: Any, events: list[Any]) -> None:
        if self._is_ending:
            raise elsewhere()
        self._engine.submit(ticket, events, checked=True)

    def _peer(self, number: int) -> Peer:
        """The line to another worker."""
        peer = self._peers.get(number)
        if peer is None:
            peer = self._peers[number] = Peer(self._heard, self._lost)
            self._spend(peer.connect(str(self._folder / f"{number:x}")))
        return peer

    def _lost(self, peer: Peer) -> None:
        """A worker has ended. Its partitions are free as soon as its session is gone."""
        self._peers = {number: other for number, other in self._peers.items() if other is not peer}
        for part in peer.asked.values():
            self._wait(part)
        self._engine.look()
        self._hand_out()

    def _from_ids(self, checked: Checked) -> None:
        """Called on the thread that looks up ids."""
        self._soon(self._checked)(checked)

    def _checked(self, checked: Checked) -> None:
        for whole, refusal in checked:
            if refusal is None:
                self._send(whole, range(len(whole.events)))
            else:
                whole.refusal = refusal
                self._finished(whole)
        self._hand_out()

    # ---- inner ------------------------------------------------------------------------------------------------------

    def _time(self) -> float:
        assert self._loop is not None  # noqa: S101 - `start` comes first
        return self._loop.time()

    def _soon(self, call: Callable[..., None]) -> Callable[..., None]:
        """The same call on the loop, from any thread. Once the loop is closed nobody waits for it."""

        def later(*arguments: Any) -> None:
            assert self._loop is not None  # noqa: S101 - `start` comes first
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(call, *arguments)

        return later

    def _spend(self, work: Any) -> None:
        """Do something on the loop; a task that nobody holds may vanish."""
        assert self._loop is not None  # noqa: S101 - `start` comes first
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _placed(refusal: Refusal, places: Sequence[int]) -> Refusal:
    """A refusal that names an event of a part, with its place in the whole request."""
    if not isinstance(refusal.at, int):
        return refusal
    at = places[refusal.at]
    message = refusal.message.removesuffix(f"at event {refusal.at}") + f"at event {at}"
    return Refusal(refusal.code, message, at, refusal.status)


def _listen(path: Path) -> socket.socket:
    """A socket that only this user can reach: its folder is private."""
    made = socket.socket(socket.AF_UNIX)
    try:
        made.bind(str(path))
    except OSError as error:
        made.close()
        raise InvalidInput(f"workers must have a folder for their sockets, got: {error} - at {path.parent}") from None
    made.listen()
    made.setblocking(False)
    return made
