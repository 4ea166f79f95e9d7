"""The producers: each batch takes effect exactly once, and credit bounds the daemon's memory.

A batch is keyed by (producer, epoch, sequence). Sequences start at 1 and have no gaps, so the
highest sequence accepted in the highest epoch determines which batches were accepted.
"""

import math
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple

from streamer.daemon.core.rights import KeyLimits, Rights
from streamer.journal.record import Key
from streamer.protocol.wire import Header, Reason, WireError, integer, malformed, text

_BURST_SECONDS = 1.0
_PLENTY = 1 << 62


class Allowance:
    """The allowance of a key. most: the largest batch, which always fits if no other is unfinished.

    Times are monotonic seconds.
    """

    def __init__(self, limits: KeyLimits, most: int, now: float) -> None:
        self.limits = limits
        self.waiting = 0
        self._most = most
        self._level = float(self._capacity)
        self._filled = now

    @property
    def paced(self) -> bool:
        """Whether there is a limit on the rate."""
        return bool(self.limits.bytes_per_second)

    @property
    def _capacity(self) -> int:
        return max(int(self.limits.bytes_per_second * _BURST_SECONDS), self._most)

    def room(self, now: float) -> int:
        """How many bytes of batches the key may send now."""
        room = _PLENTY
        if self.paced:
            self._fill(now)
            room = int(self._level)
        if self.limits.waiting_bytes:
            room = min(room, max(self.limits.waiting_bytes, self._most) - self.waiting)
        return max(0, room)

    def take(self, size: int, now: float) -> None:
        """Count a batch that has come."""
        self.waiting += size
        if self.paced:
            self._fill(now)
            self._level -= size

    def _fill(self, now: float) -> None:
        gained = max(0.0, now - self._filled) * self.limits.bytes_per_second
        self._level = min(self._level + gained, float(self._capacity))
        self._filled = now


class Allowances:
    """The allowances of all keys with a limit. most: the largest batch."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._of: dict[str, Allowance] = {}

    def of(self, rights: Rights, now: float) -> Allowance | None:
        """The allowance of a key, None if it has no limit."""
        limits = rights.limits
        allowance = self._of.get(rights.key)
        if not (limits.bytes_per_second or limits.waiting_bytes):
            return None
        if allowance is None:
            allowance = self._of[rights.key] = Allowance(limits, self._most, now)
        # unfinished bytes still count after a change of the limits
        allowance.limits = limits
        return allowance


MAX_PRODUCERS = 100_000
# limits the number of batches: each takes some kilobytes of memory even if it has one byte
MAX_QUEUED = 1 << 16
# a producer counts as active this long after its last message
ACTIVE_SECONDS = 5.0
# a name that never had a batch is forgotten after this long
_IDLE_SECONDS = 3600.0
# names that may be forgotten: seconds between two searches, how many are returned at once, and
# seconds until the same name is returned again
_LOOK_SECONDS, _AT_ONCE, _AGAIN_SECONDS = 60.0, 1000, 3600.0
# with so few names left for newcomers, names that never had a batch go as soon as they are silent
_SPARE_SHARE = 10
_CROWDED_LOOK_SECONDS, _CROWDED_AT_ONCE = 0.5, 10_000
# acknowledgements of a producer go to at most this many connections
MAX_ROUTES = 4
_LONG_AGO = float("-inf")


class KnownProducer(NamedTuple):
    """A producer as it was restored: ``received`` batches of ``epoch`` are durable.

    mark: of its last durable batch, empty if it had none. heard: when it last sent something, in
    monotonic seconds.
    """

    name: str
    epoch: int
    received: int
    mark: bytes
    heard: float = _LONG_AGO


@dataclass(slots=True)
class ProducerState:
    """One producer. received, durable, matched: batches of this epoch.

    mark: of its last durable batch in any epoch. routes: the latest connections that spoke for it
    in this epoch, the last one at the end. undurable: accepted batches, of any epoch, that are not
    durable. earlier: those of earlier epochs that are not matched. lasting: it has had a batch, so
    that it is not forgotten soon.
    """

    name: str
    epoch: int
    received: int = 0
    durable: int = 0
    matched: int = 0
    mark: bytes = b""
    routes: list[bytes] = field(default_factory=list)
    heard: float = _LONG_AGO
    queued_bytes: int = 0
    undurable: int = 0
    earlier: int = 0
    lasting: bool = False
    # its hello is answered once the batches of earlier epochs are durable and its epoch is stored
    awaited: bool = False
    # when ``silent`` last returned its name
    asked: float = _LONG_AGO
    # the last credit it was sent
    told_credit: int = 0
    # the size of a batch that waits for credit, 0: none, and since when there is room for it
    need: int = 0
    offered: float | None = None
    # the allowance of its key, if that has limits
    allowance: Allowance | None = None


class Producers:
    """All producers, and their bytes in the daemon.

    stores_epochs: whether an epoch begins only when ``begun`` reports it as stored; ``beginning``
    has those to store. forget_seconds: how long a name must be silent to be forgotten, 0: never.

    limit: bytes that may be in the daemon. Credit is how many bytes a producer may have in flight
    beyond its received batches: its share of the limit, less its bytes in the daemon. The credit of
    several producers may add up to more than the limit. So a producer whose next batch is larger
    than its credit says how much it needs, and the first one that does has that much reserved.
    """

    def __init__(
        self,
        limit: int,
        max_batch: int,
        known: Iterable[KnownProducer] = (),
        *,
        stores_epochs: bool = False,
        forget_seconds: float = 0.0,
    ) -> None:
        self.beginning: list[tuple[str, int]] = []
        self.queued_bytes = 0
        self.queued_batches = 0
        # whether there is credit at all
        self.open = False
        self.limit = limit
        self.max_batch = max_batch
        self._stores_epochs = stores_epochs
        self._forget_seconds = forget_seconds
        self._looked = _LONG_AGO
        self._now = 0.0
        self._known = {producer.name: _restored(producer) for producer in known}
        # those that share the limit
        self._active: dict[str, ProducerState] = {}
        # those whose credit is below the largest batch, however long they have been silent, because
        # a producer that waits for credit sends nothing
        self._waiting: dict[str, ProducerState] = {}
        # those that have asked for credit, in the order of asking
        self._needy: dict[str, ProducerState] = {}

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

    # ---- epochs --------------------------------------------------------------------------------

    def of_batch(self, name: str, epoch: int) -> ProducerState:
        """The producer of a batch; WireError if it is not in this epoch."""
        producer = self._known.get(name)
        if producer is None or producer.epoch < epoch:
            raise WireError(
                Reason.EPOCH, f"epoch {epoch} of producer '{name}' has not begun: say hello in it"
            )
        _check_epoch(producer, epoch)
        return producer

    def greet(self, name: str, epoch: int) -> ProducerState:
        """The producer of a hello, which may begin an epoch; WireError if a later one has begun."""
        producer = self._known.get(name)
        if producer is None:
            self._make_room()
            producer = self._known[name] = ProducerState(name, epoch)
            self._begin(producer)
        elif epoch > producer.epoch:
            producer.epoch = epoch
            producer.earlier += producer.received - producer.matched
            producer.received = producer.durable = producer.matched = 0
            producer.routes.clear()
            self._begin(producer)
        _check_epoch(producer, epoch)
        return producer

    def _begin(self, producer: ProducerState) -> None:
        producer.awaited = self._stores_epochs or producer.undurable > 0
        self._store(producer)

    def _store(self, producer: ProducerState) -> None:
        if self._stores_epochs and not producer.undurable:
            self.beginning.append((producer.name, producer.epoch))

    def begun(self, name: str, epoch: int) -> ProducerState | None:
        """An epoch is stored; returns the producer if its hello still waits for that."""
        producer = self._known.get(name)
        if producer is None or producer.epoch != epoch or not producer.awaited:
            return None
        producer.awaited = False
        return producer

    def hear(self, producer: ProducerState, route: bytes, now: float) -> None:
        """A valid message of the producer has come by this route."""
        if producer.routes[-1:] != [route]:
            others = [other for other in producer.routes if other != route]
            producer.routes = [*others[1 - MAX_ROUTES :], route]
        producer.heard = now
        self._active[producer.name] = producer

    def _make_room(self) -> None:
        if len(self._known) < MAX_PRODUCERS:
            return
        gone = [name for name, producer in self._known.items() if not producer.lasting]
        # a name that the journal stores is forgotten there first
        if self._stores_epochs or not gone:
            raise WireError(
                Reason.PRODUCERS,
                f"more than {MAX_PRODUCERS} producers: reuse a name in a new epoch",
            )
        self._forget(gone)

    # ---- unused names --------------------------------------------------------------------------

    def silent(self, now: float) -> list[str]:
        """Names that may be forgotten, some at a time; a name comes up again after a while."""
        crowded = self._crowded
        if not (self._forget_seconds or crowded):
            return []
        if now - self._looked < (_CROWDED_LOOK_SECONDS if crowded else _LOOK_SECONDS):
            return []
        self._looked = now
        candidates = (
            producer
            for producer in self._known.values()
            if self._is_silent(producer, now)
            and now - producer.asked > (_LOOK_SECONDS if crowded else _AGAIN_SECONDS)
        )
        asked = [*islice(candidates, _CROWDED_AT_ONCE if crowded else _AT_ONCE)]
        for producer in asked:
            producer.asked = now
        return [producer.name for producer in asked]

    @property
    def _crowded(self) -> bool:
        return len(self._known) * _SPARE_SHARE > MAX_PRODUCERS * (_SPARE_SHARE - 1)

    def forget(self, names: Iterable[str], now: float) -> None:
        """Forget those of these names that are still silent; nothing is stored of them any more."""
        known = [self._known[name] for name in names if name in self._known]
        self._forget([producer.name for producer in known if self._is_silent(producer, now)])

    def _is_silent(self, producer: ProducerState, now: float) -> bool:
        seconds = self._forget_seconds or math.inf
        if not producer.lasting:
            seconds = ACTIVE_SECONDS if self._crowded else min(seconds, _IDLE_SECONDS)
        busy = producer.awaited or producer.undurable or producer.queued_bytes
        return not busy and now - producer.heard > seconds

    def _forget(self, names: Iterable[str]) -> None:
        for name in names:
            for some in (self._known, self._active, self._waiting, self._needy):
                some.pop(name, None)

    # ---- batches -------------------------------------------------------------------------------

    def allow(self, producer: ProducerState, allowance: Allowance | None) -> None:
        """Set the allowance of the key that the producer sends with."""
        before = producer.allowance
        if before is allowance:
            return
        if before is not None:
            before.waiting -= producer.queued_bytes
        if allowance is not None:
            allowance.waiting += producer.queued_bytes
        producer.allowance = allowance

    def has_room(self, producer: ProducerState, size: int) -> bool:
        """Whether a batch of ``size`` bytes can be accepted before others are matched."""
        fits = producer.queued_bytes + size <= self._share() and size <= self.free(producer)
        fits = fits and (producer.allowance is None or size <= producer.allowance.room(self._now))
        return self.open and not producer.awaited and fits and self.queued_batches < MAX_QUEUED

    def accept(self, producer: ProducerState, size: int) -> None:
        """Count the next batch of a producer as accepted."""
        producer.received += 1
        producer.undurable += 1
        producer.lasting = True
        producer.queued_bytes += size
        self.queued_bytes += size
        self.queued_batches += 1
        if producer.allowance is not None:
            producer.allowance.take(size, self._now)
        self.needs(producer, 0)

    def commit(self, producer: ProducerState, epoch: int, mark: bytes) -> bool:
        """Count a batch as durable; returns whether a hello that waited for it can be answered."""
        producer.undurable -= 1
        producer.mark = mark
        if producer.epoch == epoch:
            producer.durable += 1
        if producer.undurable or not producer.awaited:
            return False
        self._store(producer)
        producer.awaited = self._stores_epochs
        return not producer.awaited

    def finish(self, producer: ProducerState, epoch: int, size: int) -> None:
        """Count a batch as finished: its results have been handed to the feed."""
        producer.queued_bytes -= size
        self.queued_bytes -= size
        self.queued_batches -= 1
        if producer.allowance is not None:
            producer.allowance.waiting -= size
        if producer.epoch == epoch:
            producer.matched += 1
        else:
            producer.earlier -= 1

    # ---- credit --------------------------------------------------------------------------------

    def needs(self, producer: ProducerState, size: int) -> None:
        """The producer's next batch has ``size`` bytes and waits for credit; 0: none waits."""
        producer.need = size
        producer.offered = None
        if size:
            self._needy[producer.name] = producer
        else:
            self._needy.pop(producer.name, None)

    def credit(self, producer: ProducerState, now: float) -> int:
        """Bytes that the producer may have in flight; remembered as sent."""
        credit = producer.told_credit = self._credit(producer)
        if producer.need and credit >= producer.need and producer.offered is None:
            producer.offered = now
        if credit < self.max_batch:
            self._waiting[producer.name] = producer
        else:
            self._waiting.pop(producer.name, None)
        return credit

    def to_be_told(self) -> Iterator[ProducerState]:
        """Producers that may be waiting for credit that has become available."""
        for producer in self._waiting.values():
            credit = self._credit(producer)
            # with a rate limit, credit grows continuously in small steps
            paced = producer.allowance is not None and producer.allowance.paced
            enough = credit >= self.max_batch or (producer.queued_bytes == 0 and not paced)
            if producer.need:
                enough = credit >= producer.need
            if credit > producer.told_credit and enough:
                yield producer

    def forget_idle(self, now: float) -> None:
        """Free the shares and reservations of silent producers."""
        self._now = now
        before = now - ACTIVE_SECONDS
        for producer in [p for p in self._active.values() if p.heard < before]:
            if not producer.queued_bytes:
                del self._active[producer.name]
        for producer in [*self._needy.values()]:
            offered = producer.offered if producer.offered is not None else now
            if min(producer.heard, offered) < before:
                self.needs(producer, 0)

    def _share(self) -> int:
        return max(self.max_batch, self.limit // max(1, len(self._active)))

    def free(self, producer: ProducerState) -> int:
        """Bytes that are neither in use nor reserved for another producer."""
        # nothing is reserved for a producer whose key may not send that much yet
        first = next((needy for needy in self._needy.values() if self._allowed(needy)), producer)
        return self.limit - self.queued_bytes - (first.need if first is not producer else 0)

    def _credit(self, producer: ProducerState) -> int:
        if not self.open or producer.awaited or self.queued_batches >= MAX_QUEUED:
            return 0
        credit = min(self.free(producer), self._share() - producer.queued_bytes)
        if producer.allowance is not None:
            credit = min(credit, producer.allowance.room(self._now))
        return max(0, credit)

    def _allowed(self, producer: ProducerState) -> bool:
        allowance = producer.allowance
        return allowance is None or producer.need <= allowance.room(self._now)


def _restored(known: KnownProducer) -> ProducerState:
    name, epoch, received, mark, heard = known
    lasting = bool(received or mark)
    return ProducerState(
        name, epoch, received, received, received, mark, heard=heard, lasting=lasting
    )


def _check_epoch(producer: ProducerState, epoch: int) -> None:
    if epoch < producer.epoch:
        name, current = producer.name, producer.epoch
        raise WireError(
            Reason.STALE_EPOCH, f"epoch {epoch} of producer '{name}' has ended, it is in {current}"
        )


MAX_MARK_BYTES = 256

NOTHING_DECIDED = "nothing is decided: name targets in decision.enrich or decision.deplete"


class Offer(NamedTuple):
    """A batch that will be accepted if its reads are valid.

    growing: whether its reads are only decided on.
    """

    producer: ProducerState
    route: bytes
    key: Key
    size: int
    growing: bool = False


def mark_of(header: Header) -> bytes:
    """The mark of a batch, empty for none; WireError if it is not valid."""
    mark = header.get("mark", b"")
    if not isinstance(mark, bytes) or len(mark) > MAX_MARK_BYTES:
        raise malformed(f"field 'mark' must be at most {MAX_MARK_BYTES} bytes")
    return mark


def keys_of(header: Header) -> Header:
    """The producer, epoch and sequence of a message, as far as they can be read."""
    keys: Header = {}
    with suppress(WireError):
        keys["producer"] = text(header, "producer")
        keys["epoch"] = integer(header, "epoch")
        keys["seq"] = integer(header, "seq", 1)
    return keys
