"""The life of the daemon: start, run, drain, end."""

from collections.abc import Callable

STARTING, RUNNING, DRAINING, ENDED = "starting", "running", "draining", "ended"
# no batch is accepted: the disk of the journal is full, or a descriptor for it is missing, until
# that has changed; or the dictionary is at a limit that refuses batches
FULL = "full"
# a thread has failed: accepted batches that were not published are lost
FAILED = "failed"
# states in which batches are accepted, and the last states
ACCEPTING, FINAL = (STARTING, RUNNING), (ENDED, FAILED)


class Life:
    """The state of the daemon; ``enter`` is called with each new state.

    starting -> running <-> full; any of these -> draining -> ended; any but ended -> failed.
    """

    def __init__(self, enter: Callable[[str], None]) -> None:
        self.state = STARTING
        self._enter = enter
        self._full = False
        self._at_limit = False

    def ready(self) -> bool:
        """The dictionary is loaded; returns whether the daemon runs from now on."""
        if self.state != STARTING:
            return False
        self._go(FULL if self._full or self._at_limit else RUNNING)
        return True

    def journal_full(self, full: bool) -> None:
        """The journal has no room for more, or has room again; a drain continues in either case."""
        self._full = full
        if full and self.state == RUNNING:
            self._go(FULL)
        elif not full and self.state == FULL and not self._at_limit:
            self._go(RUNNING)

    def at_limit(self) -> None:
        """The dictionary has reached a limit at which batches are refused, until the end."""
        self._at_limit = True
        if self.state == RUNNING:
            self._go(FULL)

    def drain(self) -> bool:
        """Accept nothing more; returns whether the drain begins with this call."""
        if self.state not in (STARTING, RUNNING, FULL):
            return False
        self._go(DRAINING)
        return True

    def drained(self) -> bool:
        """Every accepted batch has been published; returns whether the daemon has now ended."""
        if self.state != DRAINING:
            return False
        self._go(ENDED)
        return True

    def fail(self) -> bool:
        """A part of the daemon has failed; returns False if the daemon had ended before."""
        if self.state in FINAL:
            return False
        self._go(FAILED)
        return True

    def _go(self, state: str) -> None:
        self.state = state
        self._enter(state)
