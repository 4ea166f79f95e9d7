"""Ingest without I/O: the messages of producers, and the answers.

A turn is ``tick``, then the events since the last turn, then the messages that have come, then
``answers``. Each answer states the whole state, so the next one makes up for a lost one.
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from streamer.daemon.batch_record import Accepted, GrowingReads
from streamer.daemon.core import producers
from streamer.daemon.core.life import ACCEPTING, DRAINING, FULL, RUNNING, STARTING
from streamer.daemon.core.rights import EVERYTHING, Rights
from streamer.journal.record import Key
from streamer.protocol.wire import (
    PROTOCOL,
    Header,
    Reason,
    WireError,
    flag,
    integer,
    malformed,
    shown,
    text,
)
from streamer.sequences.read_batch import ReadBatch

# an epoch may be this far ahead of the clock, in milliseconds
MAX_EPOCH_AHEAD = 24 * 3600 * 1000
# checksums of this many batches stay in memory: all that may not be in the journal yet, MAX_QUEUED
MAX_CONTENTS = 1 << 16

Contents = Callable[[str, int, int], int | None]
"""The checksum of the batch with the key (producer, epoch, sequence), None if it is not known."""


class Settings(NamedTuple):
    """The facts about the daemon in answers, and its limits in bytes.

    session: its epoch, which changes with every start. durability: what ``durable`` survives;
    with ``none``, a batch counts as durable once it is accepted. stores_epochs, forget_seconds: as
    in ``Producers``. decides: whether the daemon decides on reads.
    """

    stream: str
    session: int
    durability: str
    memory_bytes: int
    max_batch_bytes: int
    stores_epochs: bool = False
    forget_seconds: float = 0.0
    decides: bool = False


class IngestCore:
    """Decides on messages, and tracks what is acknowledged to whom.

    known: the producers in the journal. number: that of the next batch. content_of: looks up in the
    journal the checksum of a batch that is no longer in memory.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        known: Iterable[producers.KnownProducer] = (),
        number: int = 0,
        content_of: Contents = lambda *_: None,
    ) -> None:
        self.producers = producers.Producers(
            settings.memory_bytes,
            settings.max_batch_bytes,
            known,
            stores_epochs=settings.stores_epochs,
            forget_seconds=settings.forget_seconds,
        )
        self.refused = 0
        """Refused messages, not counting those without credit."""
        self._settings = settings
        self._allowances = producers.Allowances(settings.max_batch_bytes)
        self._number = number
        self._content_of = content_of
        self._contents: dict[tuple[str, int, int], int] = {}
        self._life = STARTING
        self._full = False
        self._at_limit = False
        self._now = 0.0
        self._clock = 0
        self._told_state = STARTING
        # accepted batches that are not durable, in order
        self._undurable: deque[Accepted] = deque()
        self.undurable_bytes = 0
        # producers that get an acknowledgement at the end of the turn
        self._unacknowledged: dict[str, producers.ProducerState] = {}
        self._answers: list[tuple[bytes, Header]] = []

    # ---- what has happened -----------------------------------------------------------------------

    def tick(self, now: float, clock: int) -> None:
        """Begin a turn. now: monotonic seconds. clock: milliseconds since 1970."""
        self._now, self._clock = now, clock
        self.producers.forget_idle(now)

    def life(self, state: str) -> None:
        """The state of the daemon, as in ``Life``."""
        self._life = state
        self.producers.open = self._state == RUNNING

    def journal_full(self, full: bool) -> None:
        """The journal has no room for more, or has room again."""
        self._full = full
        self.producers.open = self._state == RUNNING

    def at_limit(self) -> None:
        """The dictionary has reached a limit at which batches are refused, until the end."""
        self._at_limit = True
        self.producers.open = False

    def durable(self, items: Sequence[Accepted]) -> None:
        """Batches have been recorded, and with them all batches accepted before."""
        while self._undurable and self._undurable[0].number <= items[-1].number:
            item = self._undurable.popleft()
            self.undurable_bytes -= item.size
            self._commit(item)

    def begun(self, epochs: Iterable[tuple[str, int]]) -> None:
        """These epochs of producers, which ``epochs`` returned, are stored."""
        for name, epoch in epochs:
            if producer := self.producers.begun(name, epoch):
                self._answer(producer.routes, self._welcome(producer))

    def forgotten(self, names: Iterable[str]) -> None:
        """Nothing is stored any more of these producers, which ``silent`` returned."""
        self.producers.forget(names, self._now)

    def published(self, items: Sequence[Accepted]) -> None:
        """The results of batches, which are durable, have been handed to the feed."""
        self.durable(items)
        for item in items:
            self.producers.finish(item.producer, item.key.epoch, item.size)
            self._unacknowledged[item.producer.name] = item.producer

    @property
    def undurable_batches(self) -> int:
        """How many accepted batches are not durable."""
        return len(self._undurable)

    @property
    def undurable_since(self) -> float | None:
        """When the oldest batch that is not durable was accepted, in monotonic seconds."""
        return self._undurable[0].at if self._undurable else None

    @property
    def drained(self) -> bool:
        """Whether the daemon is draining and no accepted batch is left."""
        return self._life == DRAINING and not self.producers.queued_batches

    # ---- messages in -----------------------------------------------------------------------------

    def is_likely(self, header: Header, size: int, rights: Rights = EVERYTHING) -> bool:
        """Whether a message probably gets an offer; WireError if its header is malformed."""
        producer = self.producers.find(text(header, "producer"))
        if producer is None or not rights.may_send(producer.name):
            return False
        if not 0 < size <= self._settings.max_batch_bytes:
            return False
        new = integer(header, "epoch") == producer.epoch
        new = new and integer(header, "seq", 1) > producer.received
        return new and self.producers.open and size <= self.producers.free(producer)

    def message(
        self, route: bytes, header: Header, size: int, content: int, rights: Rights = EVERYTHING
    ) -> producers.Offer | None:
        """Take a message. size, content: bytes and checksum of the frames of a batch.

        rights: those of its sender.

        Accept or refuse an offer before calling anything else.
        """
        try:
            kind = header.get("type")
            if kind not in ("hello", "batch"):
                raise malformed(f"type {shown(kind)}, must be 'hello' or 'batch'")
            name, epoch = text(header, "producer"), integer(header, "epoch")
            if not rights.may_send(name):
                denied = rights.denial(f"send as '{name}'")
                raise denied
            if kind == "hello":
                self._hello(route, name, epoch, header, rights)
                return None
            sequence = integer(header, "seq", 1)
            key = Key(name, epoch, sequence, content, producers.mark_of(header))
            growing = flag(header, "growing")
            if growing and not self._settings.decides:
                raise WireError(Reason.DENIED, producers.NOTHING_DECIDED)
            producer = self.producers.of_batch(name, epoch)
            self.producers.allow(producer, self._allowances.of(rights, self._now))
            if sequence > producer.received:
                self._check(producer, sequence, size)
                return producers.Offer(producer, route, key, size, growing)
            self._check_repeated(key)
        except WireError as error:
            self.refuse(route, error, header, rights)
            return None
        self._spoken(producer, route)
        return None

    def accept(
        self,
        offer: producers.Offer,
        batch: ReadBatch,
        names: bytes,
        growing: GrowingReads | None = None,
    ) -> Accepted:
        """Accept an offer whose reads are valid; returns the record that travels on.

        growing: reads that are only decided on; the batch is then empty.
        """
        producer, size = offer.producer, offer.size
        item = Accepted(self._number, producer, offer.key, size, batch, names, self._now, growing)
        self._number += 1
        self.producers.accept(producer, size)
        self._remember(item)
        if self._settings.durability == "none":
            self._commit(item)
        else:
            self._undurable.append(item)
            self.undurable_bytes += item.size
        self._spoken(producer, offer.route)
        return item

    def refuse(
        self, route: bytes, error: WireError, header: Header, rights: Rights = EVERYTHING
    ) -> None:
        """Refuse a message. header: its fields, as far as they are known."""
        self.refused += error.reason != Reason.CREDIT
        keys = producers.keys_of(header)
        known = self.producers.find(keys.get("producer", ""))
        # the state of another epoch would mislead a producer, that of another client is not its own
        own = known is not None and known.epoch == keys.get("epoch") and rights.may_send(known.name)
        state = self._fields(known) if known is not None and own else {}
        self._answer([route], state | {"type": "refused"} | keys | error.fields())

    # ---- what is to be stored, and messages out --------------------------------------------------

    def epochs(self) -> list[tuple[str, int]]:
        """Producers' epochs to store, in order; call ``begun`` with them afterwards."""
        epochs, self.producers.beginning = self.producers.beginning, []
        return epochs

    def silent(self) -> list[str]:
        """Unused names; call ``forgotten`` with those of which nothing is stored."""
        return self.producers.silent(self._now)

    def answers(self) -> list[tuple[bytes, Header]]:
        """The routes and headers to send, at the end of a turn.

        All routes of one acknowledgement share one header object.
        """
        state = self._state
        if state != self._told_state and state != RUNNING:
            # also to producers that send nothing: they wait for credit or have no reads
            self._unacknowledged |= {producer.name: producer for producer in self.producers}
        self._told_state = state
        if self.producers.open:
            self._unacknowledged |= {p.name: p for p in self.producers.to_be_told()}
        for producer in self._unacknowledged.values():
            if producer.routes:
                self._answer(producer.routes, self._fields(producer) | {"type": "ack"})
        self._unacknowledged.clear()
        answers, self._answers = self._answers, []
        return answers

    # ---- steps -----------------------------------------------------------------------------------

    @property
    def _state(self) -> str:
        full = self._full or self._at_limit
        return FULL if full and self._life == RUNNING else self._life

    def _hello(self, route: bytes, name: str, epoch: int, header: Header, rights: Rights) -> None:
        versions = header.get("versions", [PROTOCOL])
        spoken = isinstance(versions, list) and any(
            type(version) is int and version == PROTOCOL for version in versions
        )
        if not spoken:
            offered = ", ".join(map(shown, versions[:8])) if isinstance(versions, list) else "none"
            raise WireError(
                Reason.VERSION, f"versions offered: {offered}; this daemon has {PROTOCOL}"
            )
        need = integer(header, "need") if "need" in header else 0
        known = self.producers.find(name)
        before = known.epoch if known else -1
        if epoch > max(before, self._clock + MAX_EPOCH_AHEAD):
            raise WireError(
                Reason.EPOCH, f"epoch {epoch} is more than a day ahead of the clock: {self._clock}"
            )
        producer = self.producers.greet(name, epoch)
        self.producers.hear(producer, route, self._now)
        self.producers.allow(producer, self._allowances.of(rights, self._now))
        need = min(need, self._settings.max_batch_bytes)
        if need != producer.need:
            self.producers.needs(producer, need)
        if not producer.awaited:
            self._answer([route], self._welcome(producer))
        elif epoch == before:
            # a producer that asks again learns at least that the daemon is there
            self._unacknowledged[name] = producer

    def _check(self, producer: producers.ProducerState, sequence: int, size: int) -> None:
        """WireError if a new batch cannot be accepted."""
        expected, most = producer.received + 1, self._settings.max_batch_bytes
        if sequence > expected:
            raise WireError(Reason.GAP, f"got batch {sequence}, expected batch {expected}")
        if self._state == FULL:
            problem = "the disk of the journal is full: wait for credit, then send the batch again"
            if self._at_limit:
                problem = "the dictionary is full: restart the daemon with a larger max_kmers"
            raise WireError(Reason.FULL, problem)
        if self._life not in ACCEPTING:
            raise WireError(
                Reason.DRAINING, f"the daemon accepts no more batches (state: {self._life})"
            )
        if size > most:
            raise WireError(Reason.TOO_LARGE, f"a batch of {size} bytes exceeds {most} bytes")
        if not self.producers.has_room(producer, size):
            raise WireError(Reason.CREDIT, "no credit: wait for it, then send the batch again")

    def _check_repeated(self, key: Key) -> None:
        """WireError if a batch was accepted before with different content."""
        before = self._contents.get(key[:3])
        if before is None:
            before = self._content_of(*key[:3])
        if before is not None and before != key.content:
            raise WireError(
                Reason.CONFLICT,
                f"batch {key.sequence} was accepted with another content: use another number",
            )

    def _remember(self, item: Accepted) -> None:
        self._contents[item.key[:3]] = item.key.content
        if len(self._contents) > MAX_CONTENTS:
            del self._contents[next(iter(self._contents))]

    def _commit(self, item: Accepted) -> None:
        producer = item.producer
        if self.producers.commit(producer, item.key.epoch, item.key.mark):
            self._answer(producer.routes, self._welcome(producer))
        self._unacknowledged[producer.name] = producer

    def _spoken(self, producer: producers.ProducerState, route: bytes) -> None:
        self.producers.hear(producer, route, self._now)
        self._unacknowledged[producer.name] = producer

    def _welcome(self, producer: producers.ProducerState) -> Header:
        mark = {"mark": producer.mark} if producer.mark else {}
        return (
            self._fields(producer)
            | mark
            | {
                "type": "welcome",
                "version": PROTOCOL,
                "max_batch_bytes": self._settings.max_batch_bytes,
                "durability": self._settings.durability,
            }
        )

    def _fields(self, producer: producers.ProducerState) -> Header:
        return {
            "state": self._state,
            "producer": producer.name,
            "epoch": producer.epoch,
            "received": producer.received,
            "durable": producer.durable,
            "matched": producer.matched,
            "earlier": producer.earlier,
            "credit": self.producers.credit(producer, self._now),
        }

    def _answer(self, routes: Iterable[bytes], answer: Header) -> None:
        stamp = {"v": PROTOCOL, "stream": self._settings.stream, "session": self._settings.session}
        answer = stamp | answer
        self._answers += [(route, answer) for route in routes]
