"""Replay of a journal on a ROUTER socket; the clock, the network and the log are passed in.

The sync process runs it on a socket, the simulator on its own network.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from enum import Enum

from streamer.daemon.core.flows import Fetch, Flow, Pull, Route, SyncLimits
from streamer.daemon.core.sync import BURST_BYTES, SyncCore
from streamer.daemon.replayed_journal import ReplayedJournal, refusal
from streamer.journal.journal_errors import JournalDamage, JournalError, JournalExpired
from streamer.protocol.header import Buffer

MOST_HELD = 1000
"""How many answers may wait for a connection before it is given up."""


class HandedOver(Enum):
    """What became of a message that was handed to a ROUTER socket."""

    SENT = "sent"
    GONE = "gone"
    FULL = "full"


class SyncReplay:
    """Answers requests from a journal, a burst of one request at a time.

    now: returns the time in seconds. send: hands a message over without waiting. on_damage: is
    called for a damaged record, which is skipped, or with ``ends`` for damage that ends a request.
    """

    def __init__(
        self,
        journal: ReplayedJournal,
        limits: SyncLimits,
        now: Callable[[], float],
        send: Callable[[Route, Sequence[Buffer]], HandedOver],
        on_damage: Callable[[JournalError, bool], None],
    ) -> None:
        self.core = SyncCore(limits)
        self._journal = journal
        self._now = now
        self._hand_over = send
        self._on_damage = on_damage
        # messages for connections without room
        self._held: dict[Route, deque[Sequence[Buffer]]] = {}

    @property
    def waits(self) -> bool:
        """Whether a message waits for room."""
        return bool(self._held)

    def see(self) -> int:
        """Check what has been committed; returns the number of the last record."""
        stored = self._journal.look()
        self.core.see(stored)
        return stored.head

    def turn(self) -> bool:
        """Serve a burst of one request; returns whether there was one."""
        flow = self.core.turn(self._now())
        if flow is None:
            return False
        try:
            self._burst(flow)
        except JournalExpired:
            assert isinstance(flow, Pull)
            self.see()
            self.core.expire(flow)
        except JournalError as error:
            self._on_damage(error, True)
            self.core.abandon(flow, refusal(error))
        return True

    def _burst(self, flow: Flow) -> None:
        if isinstance(flow, Fetch):
            if flow.parts is None and self._journal.checked():
                self.core.give_state(flow, self._journal.state())
            if flow.parts is not None:
                self.core.go_on(flow, self._now())
        elif isinstance(flow, Pull):
            self._pull(flow)

    def _pull(self, pull: Pull) -> None:
        core, sent = self.core, 0
        while sent < BURST_BYTES and core.open(pull):
            now = self._now()
            try:
                record = self._journal.after(pull.at)
            except JournalDamage as damage:
                if damage.record is None:
                    raise
                self._on_damage(damage, False)
                core.lose(pull, damage.record, str(damage), now)
                continue
            if record is None:
                core.give_up(pull, now)
            else:
                # a record without messages must be read, too
                sent += core.give(pull, record, now) + (record.size >> 4)

    def send(self) -> bool:
        """Send what waits and what is new; returns whether any waiting message found room."""
        flushed = [self._flush(route) for route in [*self._held]]
        out, self.core.out = self.core.out, []
        # forget the requests of the connection: nothing may follow a lost message
        given_up: set[Route] = set()
        for route, frames in out:
            if route in given_up:
                continue
            waiting = self._held.get(route)
            if waiting is not None:
                waiting.append(frames)
                if len(waiting) > MOST_HELD:
                    self.give_up(route)
                    given_up.add(route)
            else:
                self._try(route, frames)
        return any(flushed)

    def _try(self, route: Route, frames: Sequence[Buffer]) -> bool:
        """Send a message, or keep it until there is room; returns whether there was."""
        match self._hand_over(route, frames):
            case HandedOver.FULL:
                self._held.setdefault(route, deque()).appendleft(frames)
                self.core.hold(route)
                return False
            case HandedOver.GONE:
                self.give_up(route)
                return False
        return True

    def _flush(self, route: Route) -> bool:
        """Send what waits for a connection; returns whether any of it found room."""
        waiting, some = self._held[route], False
        while waiting:
            if not self._try(route, waiting.popleft()):
                return some
            some = True
        del self._held[route]
        self.core.release(route)
        return True

    def give_up(self, route: Route) -> None:
        """Forget a connection that has ended or reads nothing."""
        self._held.pop(route, None)
        self.core.gone(route)
