"""``Producer``: sends batches of reads, keeps each until it is durable, and obeys credit.

``ProducerSteps`` is what it has in common with the one for asyncio: all but how they wait.
"""

import os
import socket as host
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import zmq

from streamer.client.client_errors import DaemonError, StalledError, TooLargeError
from streamer.client.connection import Connection, Context, Keys
from streamer.client.core.producer import Batch, Outgoing, ProducerCore
from streamer.errors import UsageError
from streamer.protocol import wire
from streamer.protocol.checksum_kernels import combine
from streamer.protocol.payloads import decode_batch, encode_batch, encode_reads, too_many_labels
from streamer.protocol.transport.frames import Copier
from streamer.sequences.read_batch import PackedNames, ReadBatch

_LETTERS = 2  # the frame of form columns

Pair = tuple[str, str | bytes]
Reads = Iterable[Pair]


Mark = Callable[[int], bytes]
"""Gives the mark of a batch from the number of reads up to its end."""


@dataclass(frozen=True, slots=True)
class EncodedBatch:
    """Reads encoded for the socket, so that several threads can encode for one producer.

    frames: of form columns. checksum: CRC-32C of all of them.
    """

    names: Sequence[str]
    frames: list[wire.Buffer]
    checksum: int

    def __len__(self) -> int:
        return len(self.names)

    @property
    def symbols(self) -> int:
        """The number of letters."""
        return len(self.frames[_LETTERS])

    def decoded(self) -> ReadBatch:
        """The reads."""
        return decode_batch({"form": "columns"}, self.frames)[0]


class Piece(NamedTuple):
    """Reads that are sent together. mark: as in ``Producer.send``.

    place, before: their file, and its records before them, for people.
    """

    reads: EncodedBatch | ReadBatch
    mark: bytes | Mark = b""
    place: str = ""
    before: int = 0


def encoded(reads: ReadBatch) -> EncodedBatch | ReadBatch:
    """The reads encoded, or unchanged if their labels do not fit into one message."""
    if too_many_labels(reads.context):
        return reads
    return _encoded(reads.names, encode_batch(reads))


def _encoded(names: Sequence[str], frames: list[wire.Buffer]) -> EncodedBatch:
    return EncodedBatch(names, frames, wire.crc32c(frames))


def parts(
    reads: EncodedBatch | ReadBatch | Sequence[Pair],
    most: int,
    endpoint: str,
    mark: Mark = lambda _: b"",
) -> Iterator[Batch]:
    """Batches of at most ``most`` bytes; TooLargeError for a read that is larger by itself."""
    done = 0
    try:
        for batch in _parts(reads, most, endpoint):
            done += batch.reads
            batch.mark = mark(done)
            yield batch
    except TooLargeError as error:
        error.index = done
        raise


def _parts(
    reads: EncodedBatch | ReadBatch | Sequence[Pair], most: int, endpoint: str
) -> Iterator[Batch]:
    made: EncodedBatch | ReadBatch
    match reads:
        case EncodedBatch():
            made = reads
        case ReadBatch():
            made = encoded(reads)
        case _:
            made = _encoded([name for name, _ in reads], encode_reads(reads))
    if isinstance(made, EncodedBatch):
        size, count = wire.size_of(made.frames), len(made)
        if size <= most:
            last = str(made.names[-1]) if count else None
            yield Batch(made.frames, size, made.checksum, count, last)
            return
        if count <= 1:
            raise TooLargeError(endpoint, str(made.names[0]), size, most)
    whole = reads.decoded() if isinstance(reads, EncodedBatch) else reads
    half = len(whole) // 2
    for part in _slice(whole, 0, half), _slice(whole, half, len(whole)):
        yield from _parts(part, most, endpoint)


def _slice(reads: ReadBatch | Sequence[Pair], start: int, stop: int) -> ReadBatch | Sequence[Pair]:
    return part_of(reads, start, stop) if isinstance(reads, ReadBatch) else reads[start:stop]


def part_of(reads: ReadBatch, start: int, stop: int) -> ReadBatch:
    """The reads from ``start`` to ``stop``, exclusive."""
    first, last = int(reads.offsets[start]), int(reads.offsets[stop])
    offsets = (reads.offsets[start : stop + 1] - first).astype(np.int64)
    names = reads.names
    part = names.part(start, stop) if isinstance(names, PackedNames) else names[start:stop]
    context = reads.context and reads.context.part(start, stop)
    return ReadBatch(part, offsets, reads.bases[first:last], context)


# the daemon's messages are a header each; further frames are dropped
_MOST_FRAMES = 8
_POLL_SECONDS = 0.1
_MAX_MARK_BYTES = 256

Steps = Generator[float, None, None]
"""What takes time, step by step: between two, a message is awaited for at most so many seconds."""


class ProducerSteps(Connection):
    """A producer whose calls are steps; ``Producer`` documents it."""

    def __init__(
        self,
        endpoint: str,
        *,
        name: str | None = None,
        answer_seconds: float = 5.0,
        context: Context | None = None,
        keys: Keys = None,
    ) -> None:
        # IMMEDIATE: nothing is queued for a daemon that is not there
        options: dict[int, int] = {zmq.IMMEDIATE: 1}
        super().__init__(endpoint, answer_seconds, context, zmq.DEALER, options, keys)
        name = name or f"{host.gethostname()}-{os.getpid()}-{os.urandom(3).hex()}"
        epoch = time.time_ns() // 1_000_000
        self._core = ProducerCore(endpoint, name, epoch, answer_seconds)
        self._copier = Copier(self._socket, frames=_MOST_FRAMES)
        # a message did not go out: there was no daemon, or no room
        self._blocked = False
        # of the batch handed over last
        self._last_mark = b""

    # ---- how far it came -----------------------------------------------------------------------

    @property
    def name(self) -> str:
        """The name of this producer."""
        return self._core.name

    @property
    def answer_seconds(self) -> float:
        """How long the daemon may be silent when it owes an answer."""
        return self._core.answer_seconds

    @answer_seconds.setter
    def answer_seconds(self, seconds: float) -> None:
        self._core.answer_seconds = seconds

    @property
    def state(self) -> str:
        """The state of the daemon, as last reported; empty before the first answer."""
        return self._core.state

    @property
    def epoch(self) -> int:
        """The epoch in which batches are numbered now."""
        return self._core.epoch

    @property
    def received(self) -> int:
        """Batches of this epoch that the daemon has accepted."""
        return self._core.received

    @property
    def durable(self) -> int:
        """Batches of this epoch that are durable: the daemon does not need them again."""
        return self._core.account.durable

    @property
    def matched(self) -> int:
        """Batches of this epoch whose results have been published."""
        return self._core.matched

    @property
    def mark(self) -> bytes:
        """The mark of the last durable batch of this name, in any run of it; empty if it had none.

        As of the last answer to a greeting: after ``connect``, where an earlier run came to.
        """
        return self._core.mark

    @property
    def reads_sent(self) -> int:
        """Reads that have gone out, in all epochs, whatever became of them."""
        return self._core.account.sent

    @property
    def reads_acknowledged(self) -> int:
        """Reads that are durable, in all epochs, without those that the daemon has lost."""
        return self._core.account.acknowledged.reads

    @property
    def reads_matched(self) -> int:
        """Reads whose results are known to have been published."""
        return self._core.account.matched.reads

    @property
    def last_acknowledged(self) -> str | None:
        """The name of the last read that is durable."""
        return self._core.account.acknowledged.last

    def heed(self) -> None:
        """Take the answers that have come, without waiting; for producers that send rarely.

        When a connection ends, libzmq drops the messages that nobody has taken.
        """
        self._receive()
        self._transmit()

    def _marks(self, mark: bytes, reads: int) -> Mark:
        before = self._last_mark
        return lambda done: mark if done == reads else before

    def _owes_answer(self) -> None:
        self._core.owes_answer(time.monotonic())

    def _ask_if_ended(self) -> None:
        """The daemon took no more when it was last heard, but another may answer by now."""
        if self._core.takes_no_more:
            self._core.greet_anew()

    # ---- steps ---------------------------------------------------------------------------------

    def _connecting(self, timeout: float | None) -> Steps:
        self._owes_answer()
        yield from self._until(lambda: self._core.synced, timeout, "its answer")

    def _sending(
        self,
        reads: EncodedBatch | ReadBatch | Reads,
        timeout: float | None,
        mark: bytes | Mark,
        growing: bool,
    ) -> Steps:
        self._ask_if_ended()
        yield from self._connecting(timeout)
        batch = reads if isinstance(reads, EncodedBatch | ReadBatch) else list(reads)
        if growing:
            # nothing of it is recorded: the place to go on from stays
            mark = mark or self._last_mark
        marks = mark if callable(mark) else self._marks(mark, len(batch))
        for part in parts(batch, self._core.max_batch, self.endpoint, marks):
            if len(part.mark) > _MAX_MARK_BYTES:
                raise UsageError(
                    f"a mark has at most {_MAX_MARK_BYTES} bytes, not {len(part.mark)}"
                )
            part.growing = growing
            self._core.add(part)
            try:
                yield from self._until(lambda: self._core.all_sent, timeout, "credit")
            except StalledError:
                self._core.take_back(part)
                raise
            self._last_mark = part.mark

    def _flushing(self, timeout: float | None, matched: bool) -> Steps:
        core = self._core
        if core.account.kept:
            self._ask_if_ended()
        self._owes_answer()
        yield from self._until(
            lambda: core.synced and not core.account.kept, timeout, "acknowledgements"
        )
        if matched:
            yield from self._until(lambda: core.all_matched, timeout, "results")

    def _settling(self, timeout: float | None) -> Steps:
        core = self._core
        self._owes_answer()
        # messages arrive in order: the answer to a new greeting comes after those to all batches
        awaited = core.greetings + 1
        core.greet_anew()
        try:
            core.settling = True
            yield from self._until(lambda: core.welcomes >= awaited, timeout, "its answer")
        finally:
            core.settling = False

    def _until(self, done: Callable[[], bool], timeout: float | None, what: str) -> Steps:
        self._receive()
        self._transmit()
        while not done():
            now = time.monotonic()
            self._core.check(now, timeout, what)
            if self._core.must_ask(now):
                self._send(self._core.hello())
            yield _POLL_SECONDS
            self._check_admitted()
            self._receive()
            self._transmit()

    # ---- messages ------------------------------------------------------------------------------

    def _transmit(self) -> None:
        while (message := self._core.batch()) is not None and self._send(message):
            pass

    def _send(self, message: Outgoing) -> bool:
        frames = _sealed(message)
        try:
            self._socket.send_multipart(frames, zmq.NOBLOCK, copy=False)
        except zmq.Again:
            self._core.stayed(message)
            self._blocked = True
            return False
        except BaseException:
            hello = _sealed(self._core.interrupted(message))
            self._socket.send_multipart(hello, zmq.NOBLOCK)
            raise
        self._core.went_out(message, time.monotonic())
        return True

    def _awaited(self) -> int:
        """The events that the next step waits for: a message, and room if there was none."""
        events = zmq.POLLIN | zmq.POLLOUT if self._blocked else zmq.POLLIN
        self._blocked = False
        return events

    def _receive(self) -> None:
        while (received := self._copier.take()) is not None:
            frames, crc = received
            try:
                self._core.hear(wire.unpack(wire.unseal(frames, crc=crc)[0]), time.monotonic())
            except wire.WireError as error:
                raise DaemonError(self.endpoint, f"invalid reply: {error}") from None


def _sealed(message: Outgoing) -> list[wire.Buffer]:
    """All frames of a message; those of a batch are not read again."""
    head = wire.pack(message.header)
    crc = combine(wire.crc32c([head]), message.checksum, message.size)
    return wire.seal([head, *message.frames], int(crc))


class Producer(ProducerSteps):
    """Sends batches of reads to the daemon at ``endpoint``, in order, each with one effect.

    name: of this producer, the same in every run that continues another; by default it is new.
    answer_seconds: how long the daemon may be silent when it owes an answer.

    Whatever ended a call early, ``reads_sent``, ``reads_acknowledged``, ``reads_matched`` and
    ``last_acknowledged`` tell how far it came, and ``state`` is the last known one of the daemon.
    A batch may have gone out without an answer so far: ``settle`` waits for that. As long as no
    batch was refused, the reads acknowledged are the first of those handed over.

    >>> from streamer.client import Producer
    >>> with Producer("tcp://127.0.0.1:5701", name="bench7") as producer:
    ...     producer.connect()
    ...     producer.send([("read1", "GGGCGGCGACCTCGCGGGTTTTCGCTATTTAT")], mark=b"1 read")
    ...     producer.flush(matched=True, timeout=60)
    ...     print(producer.state, producer.reads_acknowledged, producer.last_acknowledged)
    running 1 read1

    After an interrupt ``settle`` finds out what has arrived, and a later run of the same name finds
    its mark:

    >>> producer = Producer("tcp://127.0.0.1:5701", name="bench7")
    >>> producer.connect()
    >>> producer.mark
    b'1 read'
    >>> producer.heed()  # takes answers without waiting
    >>> producer.settle(timeout=60)
    >>> producer.close()
    """

    def connect(self, *, timeout: float | None = None) -> None:
        """Return once the daemon has answered; ``send`` and ``flush`` do so by themselves."""
        self._run(self._connecting(timeout))

    def send(
        self,
        reads: EncodedBatch | ReadBatch | Reads,
        *,
        timeout: float | None = None,
        mark: bytes | Mark = b"",
        growing: bool = False,
    ) -> None:
        """Send a batch: returns when it is on its way, which requires credit.

        reads: a ReadBatch, an EncodedBatch, or (name, letters) pairs; a batch larger than the
        daemon takes is split, and the reads before one that is too large by itself are sent.
        timeout: seconds without any progress after which StalledError is raised and the batch is
        not sent. RefusedError is about this or an earlier batch; the others go on.

        mark: at most 256 bytes that are recorded with the batch; a later run of this name finds
        those of the last durable batch in ``mark``. A function gives them for the first so many
        reads of the batch: if it is split, each part has its own. With bytes only the last part
        has them, and the others repeat those before.

        growing: the reads are still being sequenced. They are decided on, on the topic
        ``decision``, and nothing else: send them again as they grow, and whole without this.
        """
        self._run(self._sending(reads, timeout, mark, growing))

    def flush(self, *, timeout: float | None = None, matched: bool = False) -> None:
        """Return once everything sent is durable, and with ``matched`` matched and published.

        timeout: seconds without any progress after which StalledError is raised.
        """
        self._run(self._flushing(timeout, matched))

    def settle(self, *, timeout: float | None = None) -> None:
        """Send nothing more, and return once the daemon has answered for all that has gone out.

        From then on ``reads_acknowledged`` is final, unless batches wait for the daemon's disk. For
        use after an interrupt or an error; ``send`` and ``flush`` go on with the batches that
        remain.
        """
        self._run(self._settling(timeout))

    def close(self) -> None:
        """Close the connection. What is not acknowledged may be lost: ``flush`` first."""
        super().close()

    def _finish(self) -> None:
        self.flush()

    def _run(self, steps: Steps) -> None:
        with closing(steps):
            for seconds in steps:
                self._socket.poll(int(seconds * 1000), self._awaited())
