"""`Client` and `AsyncClient`: one sends the requests of a `Conversation` and waits, the other awaits."""

from __future__ import annotations

import asyncio
import functools
import inspect
import time as clock
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, ClassVar, Concatenate, ParamSpec, Self, TypeVar

from calibeat._util.check import shown
from calibeat._util.extras import need
from calibeat.errors import InvalidInput

from .conversation import Conversation, Pause, RefusedOutcome, Reply, Retries, Send, Steps

P = ParamSpec("P")
T = TypeVar("T")
Call = Callable[Concatenate[Conversation, P], Steps[T]]


class _BaseClient:
    """What both clients share: the constructor, and the numbers of the buffer."""

    _HTTPX: ClassVar[str]  # the class of httpx that sends

    def __init__(
        self,
        url: str,
        token: str | None = None,
        *,
        retries: Retries | int = 5,
        timeout: float = 10.0,
        buffer: int = 10_000,
    ) -> None:
        self._http = need("httpx", extra="client", what="the client")
        if not isinstance(url, str) or not url.startswith(("http://", "https://")):
            raise InvalidInput(f"url must begin with http:// or https://, got {shown(url)}")
        headers = {"content-type": "application/json", "user-agent": "calibeat"}
        if token is not None:
            headers["authorization"] = f"Bearer {token}"
        self._client = getattr(self._http, self._HTTPX)(base_url=url, headers=headers, timeout=timeout)
        self._conversation = Conversation(retries, buffer)

    @property
    def buffered(self) -> int:
        """How many outcomes wait for the service to come back."""
        return len(self._conversation.buffer)

    @property
    def dropped(self) -> int:
        """How many outcomes were lost because the buffer was full."""
        return self._conversation.buffer.dropped

    @property
    def refused(self) -> int:
        """How many outcomes of the buffer the service refused. They are no longer in it: `refusals` has them."""
        return self._conversation.buffer.refused

    @property
    def refusals(self) -> list[RefusedOutcome]:
        """The latest 1,000 of them, each with the service's reason."""
        return list(self._conversation.buffer.refusals)


def _sent_with(step: Send) -> dict[str, Any]:
    return {"content": step.content, "headers": step.headers}


def _answered(answer: Any) -> Reply:
    return Reply(answer.status_code, answer.content, answer.headers.get("retry-after"))


def _unanswered(error: Exception) -> Reply:
    return Reply(0, (str(error) or type(error).__name__).encode())


def _named(method: Any, call: Any) -> Any:
    """Give a method the name, text and signature of a call; it returns what the conversation ends with."""
    functools.update_wrapper(method, call)
    del method.__wrapped__
    returned = call.__annotations__["return"].removeprefix("Steps[").removesuffix("]")
    method.__annotations__ = {**call.__annotations__, "return": returned}
    method.__signature__ = inspect.signature(call).replace(return_annotation=returned)
    return method


def _sent(call: Call[P, T]) -> Callable[Concatenate[Client, P], T]:
    """A call of the conversation as a method of `Client`."""

    def method(self: Client, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._run(call(self._conversation, *args, **kwargs))

    return _named(method, call)


def _awaited(call: Call[P, T]) -> Callable[Concatenate[AsyncClient, P], Coroutine[Any, Any, T]]:
    """A call of the conversation as a method of `AsyncClient`."""

    async def method(self: AsyncClient, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._run(call(self._conversation, *args, **kwargs))

    return _named(method, call)


class Client(_BaseClient):
    """A calibration service, over HTTP.

    Every event has an id, which is made here if the caller gives none. A request that gets no answer is sent again with
    the same ids, so an event never counts twice. An outcome that cannot be delivered is kept in a buffer and sent with
    the next outcome, or by `flush` or `close`. It leaves the buffer when it was answered: an interrupted call, an
    expired token or an error of the service loses nothing. The buffer is in memory: it survives a short outage of the
    service, not the end of this process. Threads may share a client. During an outage one of them retries, and the
    outcomes of the others are buffered at once.

    Parameters
    ----------
    url : the address of the service, such as ``"http://127.0.0.1:8377"``.
    token : a token of scope ``write``, or ``read`` for the calls that only read.
    retries : how often to try again, or `Retries` to say how long to wait, too.
    timeout : seconds for one attempt.
    buffer : the most outcomes to keep during an outage; 0 raises instead of keeping.

    Attributes
    ----------
    buffered : how many outcomes wait for the service to come back.
    dropped : how many outcomes were lost because the buffer was full.
    refused : how many outcomes of the buffer the service refused.
    refusals : the latest 1,000 of them, each with the service's reason.

    Raises
    ------
    InvalidInput : the address does not begin with http:// or https://.
    MissingExtra : httpx is not installed.

    >>> with Client("http://127.0.0.1:8377") as client:  # doctest: +SKIP
    ...     answer = client.predict("paris", 0.83, id="e1")
    ...     print(answer.stream, answer.id, round(answer.probability, 2))
    ...     print(client.outcome("paris", answer.id, 1))
    ...     print(client.outcome("paris", answer.id, 1))
    paris e1 0.83
    learnt
    repeated
    """

    _HTTPX = "Client"

    predict = _sent(Conversation.predict)
    predict_many = _sent(Conversation.predict_many)
    outcome = _sent(Conversation.outcome)
    outcomes = _sent(Conversation.outcomes)
    flush = _sent(Conversation.flush)
    stream = _sent(Conversation.stream)
    streams = _sent(Conversation.streams)
    event = _sent(Conversation.event)
    events = _sent(Conversation.events)
    alarms = _sent(Conversation.alarms)
    correct = _sent(Conversation.correct)
    define = _sent(Conversation.define)
    freeze = _sent(Conversation.freeze)
    resume = _sent(Conversation.resume)
    passthrough = _sent(Conversation.passthrough)
    reset = _sent(Conversation.reset)
    copy = _sent(Conversation.copy)
    rename = _sent(Conversation.rename)
    delete = _sent(Conversation.delete)
    forget = _sent(Conversation.forget)
    forget_many = _sent(Conversation.forget_many)

    def close(self) -> None:
        """Try once more to deliver what waits, then close the connections."""
        try:
            if self.buffered:
                self.flush()
        finally:
            self._client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _run(self, steps: Steps[T]) -> T:
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
                    clock.sleep(step.seconds)
                    continue
                try:
                    reply = _answered(self._client.request(step.method, step.path, **_sent_with(step)))
                except self._http.TransportError as error:
                    reply = _unanswered(error)
        finally:
            steps.close()  # now, not when a traceback is freed: other calls wait for their turn


class AsyncClient(_BaseClient):
    """`Client` with `await`: same arguments, same calls, same answers. A call may be cancelled at any moment.

    >>> async def example(url):
    ...     async with AsyncClient(url) as client:
    ...         answer = await client.predict("rome", 0.4, id="a1")
    ...         return await client.outcome("rome", answer.id, 0)
    >>> asyncio.run(example("http://127.0.0.1:8377"))  # doctest: +SKIP
    'learnt'
    """

    _HTTPX = "AsyncClient"

    predict = _awaited(Conversation.predict)
    predict_many = _awaited(Conversation.predict_many)
    outcome = _awaited(Conversation.outcome)
    outcomes = _awaited(Conversation.outcomes)
    flush = _awaited(Conversation.flush)
    stream = _awaited(Conversation.stream)
    streams = _awaited(Conversation.streams)
    event = _awaited(Conversation.event)
    events = _awaited(Conversation.events)
    alarms = _awaited(Conversation.alarms)
    correct = _awaited(Conversation.correct)
    define = _awaited(Conversation.define)
    freeze = _awaited(Conversation.freeze)
    resume = _awaited(Conversation.resume)
    passthrough = _awaited(Conversation.passthrough)
    reset = _awaited(Conversation.reset)
    copy = _awaited(Conversation.copy)
    rename = _awaited(Conversation.rename)
    delete = _awaited(Conversation.delete)
    forget = _awaited(Conversation.forget)
    forget_many = _awaited(Conversation.forget_many)

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
        """As `Client._run`."""
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
                    reply = _answered(await self._client.request(step.method, step.path, **_sent_with(step)))
                except self._http.TransportError as error:
                    reply = _unanswered(error)
        finally:
            steps.close()
