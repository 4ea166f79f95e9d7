"""What a producer has handed over, and how much of it the daemon has: batches, and their reads."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field, replace

from streamer.protocol.header import Buffer


@dataclass(slots=True)
class Batch:
    """A batch that is not acknowledged. reads: how many; last: the name of the last, if any.

    sent: it has gone out at least once.
    """

    frames: list[Buffer]
    size: int
    checksum: int
    reads: int
    last: str | None
    sent: bool = False


@dataclass(frozen=True, slots=True)
class Mark:
    """An acknowledged batch of the epoch: ``reads`` acknowledged up to its end, the last's name."""

    sequence: int = 0
    reads: int = 0
    last: str | None = None


@dataclass(frozen=True, slots=True)
class Account:
    """The batches of an epoch: ``durable`` of them are acknowledged, ``held`` are those behind.

    It is replaced as a whole: an interrupt, which may come between any two steps of Python, finds
    it before a change or after it, and a batch is never counted twice or numbered anew.

    acknowledged, matched: the last such batch. unmatched: the batches from the one to the other.
    dropped: reads that were sent, but were refused, or lost with the daemon.
    """

    epoch: int
    durable: int = 0
    held: list[Batch] = field(default_factory=list)
    acknowledged: Mark = Mark()
    matched: Mark = Mark()
    unmatched: tuple[Mark, ...] = ()
    dropped: int = 0

    @property
    def total(self) -> int:
        """The number of the last batch handed over."""
        return self.durable + len(self.held)

    @property
    def sent(self) -> int:
        """Reads that have gone out, whatever became of them."""
        on_their_way = sum(batch.reads for batch in self.held if batch.sent)
        return self.acknowledged.reads + on_their_way + self.dropped

    def advanced(self, durable: int, matched: int) -> Account:
        """The daemon has batches 1 to ``durable``, and has matched those up to ``matched``."""
        count = max(0, min(durable, self.total) - self.durable)
        last = self.acknowledged
        unmatched = list(self.unmatched)
        for sequence, batch in enumerate(self.held[:count], self.durable + 1):
            last = Mark(sequence, last.reads + batch.reads, batch.last or last.last)
            unmatched.append(last)
        done = bisect_right(unmatched, matched, key=lambda mark: mark.sequence)
        return replace(
            self,
            durable=self.durable + count,
            held=self.held[count:],
            acknowledged=last,
            matched=unmatched[done - 1] if done else self.matched,
            unmatched=tuple(unmatched[done:]),
        )

    def without(self, sequence: int, epoch: int) -> Account:
        """What is held, but for a refused batch, is numbered from 1 again in a new epoch."""
        at = sequence - 1 - self.durable
        return replace(
            self,
            epoch=epoch,
            durable=0,
            held=self.held[:at] + self.held[at + 1 :],
            # the daemon no longer reports on them, but matches them before any other batch
            unmatched=tuple(replace(mark, sequence=1) for mark in self.unmatched),
            dropped=self.dropped + self.held[at].reads,
        )

    def restarted(self, lost: int, epoch: int) -> Account:
        """A new daemon knows nothing: the last ``lost`` acknowledged batches are lost."""
        kept = self.unmatched[: len(self.unmatched) - lost]
        last = kept[-1] if kept else self.matched
        if not lost:
            last = self.acknowledged
        return replace(
            self,
            epoch=epoch,
            durable=0,
            acknowledged=last,
            matched=last,
            unmatched=(),
            dropped=self.dropped + self.acknowledged.reads - last.reads,
        )
