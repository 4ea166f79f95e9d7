"""Errors of the daemon's clients."""

from streamer.errors import StreamerError
from streamer.protocol.wire import Header, shown


def told(value: object) -> str:
    """A text that a daemon sent; any other value is shown as it is."""
    return value if isinstance(value, str) else shown(value)


class DaemonError(StreamerError):
    """An error between a client and the daemon at ``endpoint``."""

    def __init__(self, endpoint: str, problem: str) -> None:
        self.endpoint = endpoint
        super().__init__(f"{endpoint}: {problem}")


class DaemonSilentError(DaemonError):
    """Nothing answers at the endpoint."""

    def __init__(self, endpoint: str, seconds: float) -> None:
        super().__init__(endpoint, f"no answer within {seconds:g} s: is the daemon running?")


class KeysRefusedError(DaemonError):
    """The daemon does not admit this client, because of its key or because it has none."""


class DaemonLostError(DaemonError):
    """The daemon's beats have stopped, and it has not announced its end."""

    def __init__(self, endpoint: str, seconds: float) -> None:
        problem = (
            f"no beat for {seconds:g} s: the daemon was killed, hangs or is unreachable; "
            "its last results may be missing"
        )
        super().__init__(endpoint, problem)


class DaemonFailedError(DaemonError):
    """The daemon has announced that it ends because of an error."""

    def __init__(self, endpoint: str) -> None:
        problem = "the daemon failed: batches that it had accepted may be missing here"
        super().__init__(endpoint, problem)


class TooLargeError(DaemonError):
    """A read does not fit into a batch; those before it were sent.

    read: its name. index: its 0-based position in what was to be sent. problem: without the
    endpoint.
    """

    def __init__(self, endpoint: str, read: str, size: int, most: int) -> None:
        self.read, self.index = read, 0
        self.problem = f"a message of {size} bytes exceeds {most} bytes (ingest.max_batch_bytes)"
        super().__init__(endpoint, f"read {read}: {self.problem}")


class StalledError(DaemonError, TimeoutError):
    """The daemon answers but makes no progress in time."""


class RefusedError(DaemonError):
    """The daemon refuses a batch or a request.

    reason: a word of the protocol. sequence: that of the batch. read, index, position: the name and
    0-based index of the faulty read and the 0-based position of its bad byte, if known.
    """

    def __init__(self, endpoint: str, header: Header) -> None:
        self.reason = told(header.get("reason"))
        self.sequence = header.get("seq")
        self.read = header.get("read")
        self.index = header.get("index")
        self.position = header.get("position")
        which = f"batch {told(self.sequence)} refused" if self.sequence else "refused"
        super().__init__(endpoint, f"{which} ({self.reason}): {told(header.get('message'))}")


class CursorError(DaemonError):
    """A position in a stream from which the daemon cannot continue.

    reason: ``too-old``, ``stream`` or ``future``. oldest, head: the first and last record that it
    can serve.
    """

    def __init__(self, endpoint: str, reason: str, oldest: int, head: int) -> None:
        self.reason, self.oldest, self.head = reason, oldest, head
        problem = {
            "too-old": f"records before {oldest} are no longer kept",
            "stream": "the cursor is of another stream: the daemon has another journal now",
            "future": f"the stream ends at record {head}, before the cursor",
        }.get(reason, reason)
        super().__init__(endpoint, problem)


class LostBatchesError(DaemonError):
    """The daemon was restarted and has lost batches that it had accepted.

    Durability ``none`` allows this. With a journal (``stored``), it was damaged or replaced. If the
    producer is used further, it sends its unacknowledged batches again in a new epoch.
    """

    def __init__(self, endpoint: str, lost: int, *, stored: bool = False) -> None:
        self.lost = lost
        what = f"{lost} accepted batches were not matched and are lost"
        if stored:
            what = f"{lost} batches that were durable are not in its journal: send them again"
        problem = f"the daemon was restarted: {what}"
        super().__init__(endpoint, problem)
