"""The producers: one effect for every batch, and credit that bounds the daemon's memory.

A batch is keyed by (producer, epoch, sequence). Sequences start at 1 and have no gaps, so the
highest sequence accepted in the highest epoch determines which batches were accepted.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

from streamer.protocol.header import Reason, WireError

MAX_PRODUCERS = 100_000
# a batch takes some kilobytes beside its bytes, and may have one byte
MAX_QUEUED = 1 << 16
# a producer counts as active this long after its last message
ACTIVE_SECONDS = 5.0


@dataclass(slots=True)
class ProducerState:
    """One producer. route: its last connection. told_credit: the last credit it was sent."""

    name: str
    epoch: int
    route: bytes
    heard: float
    received: int = 0
    matched: int = 0
    queued_bytes: int = 0
    told_credit: int = 0


class Producers:
    """All producers, and the bytes of theirs in the daemon.

    limit: bytes that may be in the daemon. Credit is what a producer may have on its way beyond
    its received batches: its share of the limit, less its bytes in the daemon.
    """

    def __init__(self, limit: int, max_batch: int) -> None:
        self.queued_bytes = 0
        self.queued_batches = 0
        self._limit = limit
        self._max_batch = max_batch
        self._known: dict[str, ProducerState] = {}
        # those that share the limit
        self._active: dict[str, ProducerState] = {}
        # those whose credit is below the largest batch, however long they have been silent: a
        # producer that waits for credit sends nothing
        self._waiting: dict[str, ProducerState] = {}
        # whether the engine is ready
        self.open = False

    def __len__(self) -> int:
        return len(self._known)

    def __iter__(self) -> Iterator[ProducerState]:
        """Every known producer."""
        return iter(self._known.values())

    @property
    def active(self) -> int:
        """How many producers share the limit now."""
        return len(self._active)

    def find(self, name: str) -> ProducerState | None:
        """The producer of this name, if it is known."""
        return self._known.get(name)

    def hear(self, name: str, epoch: int, route: bytes) -> ProducerState:
        """The producer of a message; WireError if a later epoch of it has been seen."""
        producer = self._known.get(name)
        if producer is None:
            self._make_room()
            producer = self._known[name] = ProducerState(name, epoch, route, 0.0)
        elif epoch < producer.epoch:
            problem = f"epoch {epoch} of producer '{name}' has ended, it is in {producer.epoch}"
            raise WireError(Reason.STALE_EPOCH, problem)
        elif epoch > producer.epoch:
            producer.epoch, producer.received, producer.matched = epoch, 0, 0
        producer.route = route
        producer.heard = time.monotonic()
        self._active[name] = producer
        return producer

    def is_duplicate(self, producer: ProducerState, sequence: int) -> bool:
        """Whether the batch has been accepted before; WireError if one is missing before it."""
        if sequence > producer.received + 1:
            expected = producer.received + 1
            problem = f"got batch {sequence}, expected batch {expected}"
            raise WireError(Reason.GAP, problem)
        return sequence <= producer.received

    def check_room(self, producer: ProducerState, size: int) -> None:
        """WireError if a batch of ``size`` bytes must wait until others are matched."""
        fits = producer.queued_bytes + size <= self._share()
        fits = fits and self.queued_bytes + size <= self._limit
        if not self.open or not fits or self.queued_batches >= MAX_QUEUED:
            problem = "no credit: wait for it, then send the batch again"
            raise WireError(Reason.CREDIT, problem)

    def accept(self, producer: ProducerState, size: int) -> None:
        """Count the next batch of a producer in."""
        producer.received += 1
        producer.queued_bytes += size
        self.queued_bytes += size
        self.queued_batches += 1

    def finish(self, producer: ProducerState, epoch: int, size: int) -> None:
        """Count a batch out: its results have been handed to the feed."""
        producer.queued_bytes -= size
        self.queued_bytes -= size
        self.queued_batches -= 1
        if producer.epoch == epoch:
            producer.matched += 1

    def credit(self, producer: ProducerState) -> int:
        """Bytes that the producer may have on their way; remembered as sent."""
        producer.told_credit = self._credit(producer)
        if producer.told_credit < self._max_batch:
            self._waiting[producer.name] = producer
        else:
            self._waiting.pop(producer.name, None)
        return producer.told_credit

    def to_be_told(self) -> Iterator[ProducerState]:
        """Producers that may be waiting for the credit that they now have."""
        for producer in self._waiting.values():
            credit = self._credit(producer)
            enough = credit >= self._max_batch or producer.queued_bytes == 0
            if credit > producer.told_credit and enough:
                yield producer

    def forget_idle(self) -> None:
        """Give the share of silent producers that wait for nothing to the others."""
        before = time.monotonic() - ACTIVE_SECONDS
        idle = [p for p in self._active.values() if p.heard < before and not p.queued_bytes]
        for producer in idle:
            del self._active[producer.name]

    def _share(self) -> int:
        return max(self._max_batch, self._limit // max(1, len(self._active)))

    def _credit(self, producer: ProducerState) -> int:
        if not self.open or self.queued_batches >= MAX_QUEUED:
            return 0
        free = self._limit - self.queued_bytes
        return max(0, min(free, self._share() - producer.queued_bytes))

    def _make_room(self) -> None:
        if len(self._known) < MAX_PRODUCERS:
            return
        # producers without an accepted batch can be forgotten
        self._known = {n: p for n, p in self._known.items() if p.received or p.queued_bytes}
        for some in (self._active, self._waiting):
            for name in some.keys() - self._known.keys():
                del some[name]
        if len(self._known) >= MAX_PRODUCERS:
            problem = f"more than {MAX_PRODUCERS} producers: reuse a name in a new epoch"
            raise WireError(Reason.PRODUCERS, problem)
