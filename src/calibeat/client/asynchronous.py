"""The client for programs with an event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Any, Self, TypeVar

from . import shared
from .buffer import Refusal
from .conversation import Conversation, Pause, Reply, Steps
from .shared import Answer, Retries

T = TypeVar("T")


class AsyncClient:
    """`Client` with `await`: same arguments, same calls, same answers. A call may be cancelled at any moment.

    >>> async def example(url):
    ...     async with AsyncClient(url) as client:
    ...         answer = await client.predict("rome", 0.4, id="a1")
    ...         return await client.outcome("rome", answer.id, 0)
    >>> asyncio.run(example("http://127.0.0.1:8377"))  # doctest: +SKIP
    'learnt'
    """

    def __init__(
        self,
        url: str,
        token: str | None = None,
        *,
        retries: Retries | int = 5,
        timeout: float = 10.0,
        buffer: int = 10_000,
    ) -> None:
        self._http = shared.library()
        self._client = self._http.AsyncClient(**shared.options(url, token, timeout))
        self._say = Conversation(retries, buffer)

    async def predict(
        self,
        stream: str,
        score: float,
        id: str | None = None,  # noqa: A002 - the word of the service
        *,
        time: float | None = None,
    ) -> Answer:
        """Calibrate one score."""
        return await self._run(self._say.predict(shared.forecast_event(stream, score, id, time)))

    async def predict_many(self, events: Iterable[Mapping[str, Any]]) -> list[Answer]:
        """Calibrate many scores."""
        return await self._run(self._say.predict_many(events))

    async def outcome(
        self,
        stream: str,
        id: str,  # noqa: A002
        outcome: int,
        *,
        time: float | None = None,
    ) -> str:
        """Report what became of a forecast."""
        return await self._run(self._say.outcome(shared.outcome_event(stream, id, outcome, time)))

    async def outcomes(self, events: Iterable[Mapping[str, Any]]) -> list[str]:
        """Report many outcomes."""
        return await self._run(self._say.outcomes(events))

    @property
    def buffered(self) -> int:
        """How many outcomes wait for the service to come back."""
        return len(self._say.buffer)

    @property
    def dropped(self) -> int:
        """How many outcomes were lost because the buffer was full."""
        return self._say.buffer.dropped

    @property
    def refused(self) -> int:
        """How many outcomes of the buffer the service refused."""
        return self._say.buffer.refused

    @property
    def refusals(self) -> list[Refusal]:
        """The latest 1,000 of them, each with the service's reason."""
        return list(self._say.buffer.refusals)

    async def flush(self) -> dict[str, str]:
        """Deliver the outcomes that wait."""
        return await self._run(self._say.flush())

    async def stream(self, name: str) -> dict[str, Any]:
        """What the service knows of a stream."""
        return await self._run(self._say.get(shared.stream_path(name)))

    async def streams(self, after: str | None = None, limit: int = 100) -> list[dict[str, Any]]:
        """Streams by name, `limit` of them after the one that is named."""
        found = await self._run(self._say.get(shared.streams_path(after, limit)))
        return found["streams"]

    async def close(self) -> None:
        """Try once more to deliver what waits, then close the connections."""
        try:
            if self.buffered:
                await self.flush()
        finally:
            await self._client.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def _run(self, steps: Steps[T]) -> T:
        """Send what the conversation wants to send."""
        reply: Reply | None = None
        try:
            while True:
                try:
                    step = steps.send(reply)
                except StopIteration as end:
                    return end.value
                reply = None
                if isinstance(step, Pause):
                    await asyncio.sleep(step.seconds)
                    continue
                try:
                    answer = await self._client.request(step.method, step.path, content=step.content)
                    reply = Reply(answer.status_code, answer.content, answer.headers.get("retry-after"))
                except self._http.TransportError as error:
                    reply = Reply(0, (str(error) or type(error).__name__).encode())
        finally:
            steps.close()  # now, and not when a traceback lets go of it: other calls wait for their turn
