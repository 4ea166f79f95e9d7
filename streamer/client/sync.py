"""``Sync``: replays past messages from any position, and fetches the stored state."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import count

from streamer.client.client_errors import CursorError, DaemonError, DaemonSilentError, RefusedError
from streamer.client.connection import Context, Keys
from streamer.client.core import subscriber
from streamer.client.messages import Gap, RecordMessage
from streamer.client.subscriber import SyncSocket, topic_names
from streamer.protocol.wire import WireError, opened, request

_POLL_SECONDS = 0.2


class Sync(SyncSocket):
    """Sends requests to the sync endpoint of a daemon with a journal, one at a time.

    DaemonSilentError if a due answer does not come within ``answer_seconds``, RefusedError if a
    request is refused.

    >>> from streamer.client import Producer, Sync
    >>> with Producer("tcp://127.0.0.1:5701") as producer:
    ...     producer.send([("read1", "GGGCGGCGACCTCGCGGGTTTTCGCTATTTAT")])
    ...     producer.flush()
    >>> sync = Sync("tcp://127.0.0.1:5704")
    >>> extent = sync.heads()
    >>> extent.oldest, extent.head
    (1, 2)
    >>> for message in sync.pull(["read"]):
    ...     print(message.stamp.at, message.origin.names[0])
    2 read1
    >>> sync.cursor.at
    2
    >>> stored = sync.snapshot()
    >>> stored.cursor.at
    0
    >>> sync.close()
    """

    def __init__(
        self,
        endpoint: str,
        *,
        answer_seconds: float = 5.0,
        context: Context | None = None,
        keys: Keys = None,
    ) -> None:
        super().__init__(endpoint, answer_seconds, context, keys)
        # distinguishes late answers to earlier requests
        self._numbers = count(1)
        self._positions: subscriber.Positions | None = None

    @property
    def cursor(self) -> subscriber.Cursor | None:
        """The position after the last message that ``pull`` returned."""
        return None if self._positions is None else self._positions.cursor

    def heads(self) -> subscriber.Extent:
        """The records that can be pulled now."""
        number = next(self._numbers)
        self._post(request("heads", number))
        with self._checking():
            while True:
                frames, crc = self._answer()
                header, _ = opened(frames, crc)
                if header.get("id") == number:
                    if header.get("type") == "refused":
                        raise RefusedError(self.endpoint, header)
                    return subscriber.extent_of(header)

    def snapshot(self) -> subscriber.StoredState:
        """The last stored state; ``pull`` from its cursor to get what follows."""
        core = subscriber.FetchCore(next(self._numbers))
        with self._checking():
            while True:
                self.send(core.requests)
                frames, crc = self._answer()
                answer = core.take(frames, crc)
                if isinstance(answer, subscriber.Refused):
                    raise RefusedError(self.endpoint, answer.header)
                if answer is not None:
                    return answer

    def _answer(self) -> tuple[list[memoryview], int | None]:
        deadline = time.monotonic() + self._answer_seconds
        while (received := self.take()) is None:
            remaining = deadline - time.monotonic()
            if remaining <= 0:
                raise DaemonSilentError(self.endpoint, self._answer_seconds)
            self._poll(remaining)
        return received

    @contextmanager
    def _checking(self) -> Iterator[None]:
        try:
            yield
        except WireError as error:
            raise DaemonError(self.endpoint, f"invalid reply: {error}") from None

    def pull(
        self,
        topics: Sequence[str],
        cursor: subscriber.Cursor | None = None,
        *,
        until: int | None = None,
        follow: bool = False,
    ) -> Iterator[RecordMessage | Gap]:
        """The messages after a cursor (None: from the first record), in order, each once.

        They end with record ``until``, or with the last one committed; with ``follow`` they
        continue as records are committed. A Gap marks where the journal is damaged. CursorError if
        sync cannot continue from the cursor. The arrays of a message are parts of one block of
        memory.
        """
        start = cursor or subscriber.Cursor("", 0)
        core = subscriber.PullCore(topic_names(topics), self._numbers, start)
        self._positions = core.received
        core.begin(time.monotonic(), until)
        try:
            while True:
                self.send(core.requests)
                now = time.monotonic()
                if core.silence(now) > self._answer_seconds:
                    raise DaemonSilentError(self.endpoint, self._answer_seconds)
                if core.hopeless:
                    raise DaemonError(self.endpoint, f"invalid message: {core.damage}")
                if core.overdue(now):
                    core.begin(now, until)
                received = self.take()
                if received is None:
                    self._poll(_POLL_SECONDS)
                    continue
                frames, crc = received
                for event in core.take(frames, now, crc):
                    match event:
                        case RecordMessage() | Gap():
                            yield event
                        case subscriber.Reached() if until is not None or not follow:
                            return
                        case subscriber.CursorRefused(reason, extent):
                            raise CursorError(self.endpoint, reason, extent.oldest, extent.head)
                        case subscriber.Refused(header):
                            raise RefusedError(self.endpoint, header)
        finally:
            core.end()
            self.send(core.requests)
