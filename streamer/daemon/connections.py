"""The connections thread: refuses connections before the process runs out of descriptors."""

import select
import time
from collections.abc import Callable, Sequence

import structlog

from streamer.daemon.listener import Listener
from streamer.daemon.process import open_descriptors, spare
from streamer.daemon.worker import POLL_MILLISECONDS, Mailbox, Worker
from streamer.errors import StreamerError

_LEAST_CONNECTIONS = 32
# between two checks while connections arrive
_LOOK_SECONDS = 0.00005
# how fast libzmq accepts connections
_ACCEPTED_A_MILLISECOND = 10
# between two log lines
_REPORT_SECONDS = 10.0

log = structlog.get_logger("connections")


class Connections(Worker):
    """Shuts listeners while too many descriptors are in use.

    limit: descriptors that the process may open. The last listener, that of control, stays open a
    little longer, so that the daemon can still answer.
    """

    def __init__(
        self, notify: Callable[[], None], listeners: Sequence[Listener], limit: int
    ) -> None:
        super().__init__("connections", notify)
        self._listeners = listeners
        self._limit = limit - spare(limit)
        self._wake: Mailbox[None] = Mailbox()
        last = self._limit + spare(limit) // 5
        self._limits = [self._limit] * (len(listeners) - 1) + [last]
        self._reported = -_REPORT_SECONDS
        # whether the last log line was that connections are refused
        self._refusing = False
        if open_descriptors() + _LEAST_CONNECTIONS > self._limit:
            raise StreamerError(
                f"too few file descriptors: {limit} are allowed, {open_descriptors()} are in use: "
                f"raise the limit (ulimit -n 1024)"
            )

    def stop(self) -> None:
        """Ask the thread to end, now."""
        super().stop()
        self._wake.wake()

    def work(self) -> None:
        """Check whenever a connection waits, and before too many could have come unseen.

        A connection that libzmq accepts before this thread gets a core is never seen here.
        """
        waiting = select.poll()
        waiting.register(self._wake.fileno(), select.POLLIN)
        for listener in self._listeners:
            waiting.register(listener.fileno(), select.POLLIN)
        try:
            while not self.stopping.is_set():
                patience = self._adjust() // _ACCEPTED_A_MILLISECOND or 1
                if waiting.poll(min(patience, POLL_MILLISECONDS)):
                    time.sleep(_LOOK_SECONDS)
        finally:
            self._wake.close()

    def _adjust(self) -> int:
        """Shut and open listeners; return how many descriptors are free before one shuts."""
        open_now = open_descriptors()
        opened = False
        for listener, limit in zip(self._listeners, self._limits, strict=True):
            if not listener.shut and open_now >= limit:
                listener.close()
                now = time.monotonic()
                if now - self._reported > _REPORT_SECONDS:
                    self._reported = now
                    self._refusing = True
                    log.warning("too many connections, more are refused", descriptors=open_now)
            elif listener.shut and open_now < limit - limit // 8:
                listener.open()
                opened = True
        if opened and self._refusing:
            self._refusing = False
            log.info("connections are accepted again", descriptors=open_now)
        limits = zip(self._listeners, self._limits, strict=True)
        free = [limit - open_now for listener, limit in limits if not listener.shut]
        return min(free, default=self._limit)
