"""The client for ordinary programs."""

from __future__ import annotations

import time as clock
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Any, Self, TypeVar

from . import shared
from .buffer import Refusal
from .conversation import Conversation, Pause, Reply, Steps
from .shared import Answer, Retries

T = TypeVar("T")


class Client:
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

    >>> with Client("http://127.0.0.1:8377") as client:  # doctest: +SKIP
    ...     answer = client.predict("paris", 0.83, id="e1")
    ...     print(answer.stream, answer.id, round(answer.probability, 2))
    ...     print(client.outcome("paris", answer.id, 1))
    ...     print(client.outcome("paris", answer.id, 1))
    paris e1 0.83
    learnt
    repeated
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
        self._client = self._http.Client(**shared.options(url, token, timeout))
        self._say = Conversation(retries, buffer)

    def predict(
        self,
        stream: str,
        score: float,
        id: str | None = None,  # noqa: A002 - the word of the service
        *,
        time: float | None = None,
    ) -> Answer:
        """Calibrate one score. `float(answer)` is the probability, `answer.id` is what the outcome is reported with."""
        return self._run(self._say.predict(shared.forecast_event(stream, score, id, time)))

    def predict_many(self, events: Iterable[Mapping[str, Any]]) -> list[Answer]:
        """Calibrate many scores: events with `stream`, `score`, and `id` and `time` if wanted; answers in order."""
        return self._run(self._say.predict_many(events))

    def outcome(
        self,
        stream: str,
        id: str,  # noqa: A002
        outcome: int,
        *,
        time: float | None = None,
    ) -> str:
        """Report what became of a forecast: ``learnt``, ``repeated``, ``held``, ``corrected``, or ``buffered``.

        Raises `UnknownForecast` or `OutcomeConflict` if the service refuses it.
        """
        return self._run(self._say.outcome(shared.outcome_event(stream, id, outcome, time)))

    def outcomes(self, events: Iterable[Mapping[str, Any]]) -> list[str]:
        """Report many outcomes -> a status for each, in their order.

        These are the statuses of `outcome`, and ``unknown``, ``expired``, ``conflict`` and ``refused``. A bad event
        raises, and then none was sent.
        """
        return self._run(self._say.outcomes(events))

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
        """How many outcomes of the buffer the service refused. They are no longer in it: `refusals` has them."""
        return self._say.buffer.refused

    @property
    def refusals(self) -> list[Refusal]:
        """The latest 1,000 of them, each with the service's reason."""
        return list(self._say.buffer.refusals)

    def flush(self) -> dict[str, str]:
        """Deliver the outcomes that wait -> the status of each id; ``refused`` for those that were set aside.

        Raises if the service is still away or refuses the request as a whole. What was not answered waits on.
        """
        return self._run(self._say.flush())

    def stream(self, name: str) -> dict[str, Any]:
        """What the service knows of a stream."""
        return self._run(self._say.get(shared.stream_path(name)))

    def streams(self, after: str | None = None, limit: int = 100) -> list[dict[str, Any]]:
        """Streams by name, `limit` of them after the one that is named."""
        return self._run(self._say.get(shared.streams_path(after, limit)))["streams"]

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
                    answer = self._client.request(step.method, step.path, content=step.content)
                    reply = Reply(answer.status_code, answer.content, answer.headers.get("retry-after"))
                except self._http.TransportError as error:
                    reply = Reply(0, (str(error) or type(error).__name__).encode())
        finally:
            steps.close()  # now, and not when a traceback lets go of it: other calls wait for their turn
