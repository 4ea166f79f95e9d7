"""The batches and reads of a producer, and how far the daemon has processed them."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field, replace

from streamer.protocol.header import Buffer


@dataclass(slots=True)
class Batch:
    """An unacknowledged batch.

    frames: those between header and checksum. checksum: that of these frames. reads: how many.
    last: the name of the last read. sent: how often it was sent. mark: recorded with it. growing:
    whether its reads are only decided on.
    """

    frames: list[Buffer]
    size: int
    checksum: int
    reads: int
    last: str | None
    sent: int = 0
    mark: bytes = b""
    growing: bool = False


@dataclass(frozen=True, slots=True)
class Mark:
    """An acknowledged batch: the number of reads acknowledged with it, and the last one's name."""

    sequence: int = 0
    reads: int = 0
    last: str | None = None


@dataclass(frozen=True, slots=True)
class Account:
    """The batches of an epoch: the first ``durable`` are acknowledged, ``held`` has the next ones.

    It is immutable and replaced as a whole. So an interrupt, which may come between any two steps
    of Python, finds it before or after a change, and no batch is counted or numbered twice.

    acknowledged, matched: the last such batch. unmatched: the acknowledged batches after the
    matched ones. dropped: reads that were sent but refused, or lost with the daemon.
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
        """Reads that have been sent, including those that were refused or lost."""
        on_their_way = sum(batch.reads for batch in self.held if batch.sent)
        return self.acknowledged.reads + on_their_way + self.dropped

    def advanced(self, durable: int, matched: int, earlier: int | None = None) -> Account:
        """The account after batches up to ``durable`` were stored and up to ``matched`` matched.

        earlier: batches of earlier epochs that are not matched, None if unknown.
        """
        count = max(0, min(durable, self.total) - self.durable)
        last = self.acknowledged
        unmatched = list(self.unmatched)
        for sequence, batch in enumerate(self.held[:count], self.durable + 1):
            last = Mark(sequence, last.reads + batch.reads, batch.last or last.last)
            unmatched.append(last)
        if not matched and earlier != 0:
            matched = -1
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
        """The account without a refused batch; the others are numbered from 1 in a new epoch."""
        at = sequence - 1 - self.durable
        return replace(
            self,
            epoch=epoch,
            durable=0,
            held=self.held[:at] + self.held[at + 1 :],
            # they are matched before any other batch, like ``earlier`` ones
            unmatched=tuple(replace(mark, sequence=0) for mark in self.unmatched),
            dropped=self.dropped + self.held[at].reads,
        )

    def restarted(self, lost: int, epoch: int) -> Account:
        """The account after a restart that lost the last ``lost`` acknowledged batches."""
        kept = self.unmatched[: max(0, len(self.unmatched) - lost)]
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
