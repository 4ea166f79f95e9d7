"""Reads the sources of the dictionary again while matching continues."""

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import structlog

from streamer.daemon.config import Config
from streamer.daemon.core.life import FULL, RUNNING, STARTING
from streamer.daemon.restore import fingerprint
from streamer.dictionary.targets import Dictionary
from streamer.errors import StreamerError
from streamer.matching.matcher import StreamMatcher, load_dictionary
from streamer.protocol.wire import Header, Reason, WireError

Reply = Callable[[Header | WireError], None]
"""Takes the further fields of a reply, or an error; called from any thread."""

log = structlog.get_logger("reload")


@dataclass(frozen=True, slots=True)
class Reloaded:
    """A dictionary that has been read; whoever takes it calls ``reply`` once.

    matcher: its matcher, if it could be made ahead.
    """

    dictionary: Dictionary
    fingerprint: int
    matcher: StreamMatcher | None
    reply: Reply


class Reloader:
    """Reads the sources in its own thread and passes the dictionary to ``forward``.

    prepare: makes a matcher ahead, if possible.
    """

    def __init__(
        self,
        config: Config,
        prepare: Callable[[Dictionary], StreamMatcher | None],
        forward: Callable[[Reloaded], None],
    ) -> None:
        self._config = config
        self._prepare = prepare
        self._forward = forward
        self._busy = threading.Lock()
        # of the last reload that is over: the key of its request, and the reply
        self._last: tuple[str, Header | WireError] = "", {}
        self._thread: threading.Thread | None = None
        # of the reload whose sources are being read
        self._reply: deque[Reply] = deque()

    @property
    def reading(self) -> bool:
        """Whether sources are still being read."""
        return self._thread is not None and self._thread.is_alive()

    def end(self) -> None:
        """Give up the reload whose sources are still being read: the daemon ends."""
        if reply := self._claimed():
            reply(ending())

    def begin(self, state: str, key: str, reply: Reply) -> None:
        """Begin a reload, which replies later; WireError if none is possible now.

        key: that of the request, or empty. The last reload is not repeated if it had the same one:
        its reply may have been lost.
        """
        if not self._busy.acquire(blocking=False):
            raise WireError(Reason.BUSY, "another reload is under way: try again after it")
        if key and key == self._last[0]:
            self._busy.release()
            reply(self._last[1])
            return
        try:
            self._start(state, partial(self._replied, key, reply))
        except WireError:
            self._busy.release()
            raise

    def _replied(self, key: str, reply: Reply, outcome: Header | WireError) -> None:
        self._last = key, outcome
        self._busy.release()
        if isinstance(outcome, WireError):
            log.warning("the dictionary stays as it was", why=str(outcome))
        else:
            log.info("reloaded", **outcome)
        reply(outcome)

    def _start(self, state: str, replied: Reply) -> None:
        sources = self._config.dictionary.sources
        if not sources:
            raise WireError(Reason.SOURCES, "dictionary.sources is empty: nothing can be reloaded")
        if state == STARTING:
            raise WireError(Reason.BUSY, "the dictionary is still being read: try again later")
        if state not in (RUNNING, FULL):
            raise WireError(Reason.DRAINING, f"the daemon takes no dictionary (state: {state})")
        log.info("reading the dictionary", sources=sources)
        self._reply.append(replied)
        self._thread = threading.Thread(target=self._read, name="reload", daemon=True)
        try:
            self._thread.start()
        except RuntimeError as error:
            self._thread = None
            self._reply.clear()
            raise WireError(Reason.BUSY, f"{error}: try again later") from None

    def _read(self) -> None:
        outcome: tuple[Dictionary, int, StreamMatcher | None] | WireError
        try:
            loaded = load_dictionary(self._config.spec, on_notice=log.warning)
            outcome = loaded, fingerprint(loaded), self._prepare(loaded)
        except Exception as error:
            # any error: otherwise the client would wait for ever, and no other reload could begin
            outcome = not_loaded(error)
        reply = self._claimed()
        if reply is None:
            return
        if isinstance(outcome, WireError):
            reply(outcome)
        else:
            self._forward(Reloaded(*outcome, reply))

    def _claimed(self) -> Reply | None:
        """The reply to the reload that is being read; None if another thread has taken it."""
        try:
            return self._reply.pop()
        except IndexError:
            return None


def ending() -> WireError:
    """The error for a dictionary that comes too late."""
    return WireError(Reason.DRAINING, "the daemon ends: the dictionary stays")


def not_loaded(error: Exception) -> WireError:
    """The error for a dictionary that could not replace the one in use."""
    if isinstance(error, StreamerError | OSError | ValueError | MemoryError):
        return WireError(Reason.SOURCES, str(error) or "out of memory")
    why = " ".join(str(error).split())
    return WireError(Reason.SOURCES, f"{type(error).__name__}: {why}")
