"""Who sends reads: what each producer has sent since the page began to listen."""

from __future__ import annotations

from typing import Any

MAX_PRODUCERS = 200
"""Those silent for longest are forgotten."""


class Senders:
    """Batches, reads and bases of each producer."""

    def __init__(self) -> None:
        # batches, reads, bases, and when the last batch came; the last to send stands last
        self._sent: dict[str, list[float]] = {}

    def add(self, name: str, reads: int, bases: int, now: float) -> None:
        """A batch; now: in seconds."""
        batches, reads_before, bases_before, _ = self._sent.pop(name, [0, 0, 0, 0.0])
        self._sent[name] = [batches + 1, reads_before + reads, bases_before + bases, now]
        if len(self._sent) > MAX_PRODUCERS:
            del self._sent[next(iter(self._sent))]

    def shift(self, seconds: float) -> None:
        """The clock was set: batches came as long ago as they did."""
        for sent in self._sent.values():
            sent[3] += seconds

    def rows(self) -> list[list[Any]]:
        """Name, batches, reads, bases, and when the last batch came, the last to send first."""
        return [[name, *sent] for name, sent in reversed(self._sent.items())]
