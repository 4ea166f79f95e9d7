"""The ingest thread: batches of reads in, acknowledgements, refusals and credit out."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import structlog
import zmq

from streamer.daemon.batch_record import Accepted
from streamer.daemon.board import ACCEPTING, DRAINING, RUNNING, Board
from streamer.daemon.decoding import decode_together
from streamer.daemon.mailbox import Mailbox
from streamer.daemon.producers import Producers, ProducerState
from streamer.daemon.worker import POLL_MILLISECONDS, SocketWorker
from streamer.matching.matcher import MakeTogether
from streamer.protocol.batch_messages import Make, decode_batch
from streamer.protocol.header import (
    MAX_HEADER_BYTES,
    PROTOCOL,
    Buffer,
    Header,
    Reason,
    WireError,
    answer,
    integer,
    shown,
    size_of,
    text,
    unpack,
    unseal,
)
from streamer.protocol.transport.receiving import receive
from streamer.protocol.transport.sending import send_all
from streamer.sequences.read_batch import ReadBatch

# messages, and bytes, taken before acknowledgements go out and the inbox is read
_BURST = 64
_BURST_BYTES = 1 << 24
# to refuse messages that have come, before the socket is closed
_END_SECONDS = 1.0
# for producers to read the end: libzmq drops unread messages when a connection ends
_READ_SECONDS = 0.2
# a message of the protocol has at most 5 frames; further frames are dropped
_MAX_FRAMES = 8

log = structlog.get_logger("ingest")


class _Message:
    """A message of a producer: all frames, and those between the header and the checksum.

    The header is unpacked when asked for.
    """

    def __init__(self, route: bytes, frames: list[memoryview]) -> None:
        self.route = route
        self.sealed = frames
        self.frames = frames[1:-1]
        self._header: Header | None = None
        # ahead of time, together with others
        self.decoded: tuple[ReadBatch, bytes] | None = None

    @property
    def header(self) -> Header:
        """The fields of the header; WireError if there is none."""
        if self._header is None:
            if not self.sealed:
                raise WireError(Reason.MALFORMED, "a message without frames")
            self._header = unpack(self.sealed[0])
        return self._header

    def check(self) -> None:
        """WireError unless the checksum is that of the other frames."""
        # those decoded ahead have been checked
        if self.decoded is None:
            unseal(self.sealed)


class IngestWorker(SocketWorker):
    """Accepts batches and passes them to ``forward`` in the order of acceptance.

    ``makers`` returns what makes a batch, as in ``decode_batch``, and what makes many in one step,
    if anything does. ``inbox`` gets every batch back once its results are out. ``drained`` is set
    once the daemon drains and no batch is left.
    """

    def __init__(
        self,
        board: Board,
        context: zmq.Context[zmq.Socket[bytes]],
        notify: Callable[[], None],
        forward: Callable[[Accepted], None],
        makers: Callable[[], tuple[Make, MakeTogether | None]],
    ) -> None:
        super().__init__("ingest", board, context, notify)
        self.inbox: Mailbox[Accepted] = Mailbox()
        self.opened = False
        self._life = board.state
        self._forward = forward
        self._makers = makers
        self._settings = board.config.ingest
        self._producers = Producers(self._settings.memory_bytes, self._settings.max_batch_bytes)
        self._number = 0
        self._unacknowledged: dict[str, ProducerState] = {}
        # messages for producers, sent together
        self._answers: list[list[Buffer]] = []
        self.drained = False

    def work(self) -> None:
        """Serve producers until told to stop."""
        frame_limit = self._settings.max_batch_bytes + MAX_HEADER_BYTES
        socket = self.bind(
            zmq.ROUTER,
            {
                zmq.MAXMSGSIZE: frame_limit,
                # a few messages a connection, so that some can come while others are decoded
                zmq.RCVHWM: min(1000, max(8, self._settings.memory_bytes // frame_limit // 4)),
                zmq.SNDHWM: 1000,
            },
        )
        poller = self.poller(socket, self.inbox)
        try:
            while not self.stopping.is_set():
                poller.poll(POLL_MILLISECONDS)
                self._turn(socket)
            deadline = time.monotonic() + _END_SECONDS
            while self._turn(socket) and time.monotonic() < deadline:
                pass
            if len(self._producers):
                time.sleep(_READ_SECONDS)
        finally:
            self.release(socket)

    def open(self) -> None:
        """Give credit: the engine is ready."""
        self.opened = True
        self.inbox.wake()

    def _turn(self, socket: zmq.Socket[bytes]) -> int:
        """Answer the messages that have come; how many.

        The state of the daemon is read once a turn, so that the batches a turn accepts, its credit
        and the state in its answers agree. The drain waits for every accepted batch.
        """
        before, self._life = self._life, self._board.state
        self._take_back()
        if self._life != before and self._life not in ACCEPTING:
            # also to producers that send nothing: they wait for credit, or have no reads
            self._unacknowledged |= {producer.name: producer for producer in self._producers}
        taken = self._receive(socket)
        self._acknowledge(socket)
        return taken

    def _take_back(self) -> None:
        for item in self.inbox.take():
            self._producers.finish(item.producer, item.epoch, item.size)
            self._unacknowledged[item.producer.name] = item.producer
        self._producers.open = self.opened and self._life == RUNNING
        self._producers.forget_idle()
        if self._producers.open:
            for producer in self._producers.to_be_told():
                self._unacknowledged[producer.name] = producer

    def _receive(self, socket: zmq.Socket[bytes]) -> int:
        # the first frame is the route
        received = receive(socket, messages=_BURST, frames=_MAX_FRAMES + 1, size=_BURST_BYTES)
        burst = [_Message(bytes(frames[0]), frames[1:]) for frames in received]
        self._decode_ahead(burst)
        for message in burst:
            try:
                fields = self._handle(message)
            except WireError as error:
                self._board.refused += 1
                fields = {"type": "refused"} | error.fields()
            if fields is not None:
                self._answer(message.route, fields)
        return len(burst)

    def _decode_ahead(self, burst: Sequence[_Message]) -> None:
        """Decode together the batches that will probably be accepted."""
        _, make = self._makers()
        if make is None:
            return
        likely = [message for message in burst if self._is_likely(message)]
        decoded = decode_together([(m.header, m.sealed) for m in likely], make)
        for message, found in zip(likely, decoded, strict=True):
            message.decoded = found

    def _is_likely(self, message: _Message) -> bool:
        """Whether it is a new batch of a known producer, by its header."""
        size = size_of(message.frames)
        if not 0 < size <= self._settings.max_batch_bytes:
            return False
        try:
            header = message.header
            producer = self._producers.find(text(header, "producer"))
            new = producer is not None and integer(header, "seq", 1) > producer.received
        except WireError:
            return False
        free = self._settings.memory_bytes - self._producers.queued_bytes
        return new and self._producers.open and size <= free

    def _handle(self, message: _Message) -> Header | None:
        """Process one message; the answer, None if the next acknowledgement is the answer."""
        header = message.header
        kind = header.get("type")
        if kind not in ("hello", "batch"):
            problem = f"type {shown(kind)}, must be 'hello' or 'batch'"
            raise WireError(Reason.MALFORMED, problem)
        name, epoch = text(header, "producer"), integer(header, "epoch")
        keys: Header = {"producer": name, "epoch": epoch}
        try:
            if kind == "batch":
                keys["seq"] = integer(header, "seq", 1)
            message.check()
            producer = self._producers.hear(name, epoch, message.route)
            if kind == "hello":
                return self._state(producer) | {
                    "type": "welcome",
                    "max_batch_bytes": self._settings.max_batch_bytes,
                    "durability": self._board.config.journal.durability,
                }
            self._take(producer, keys["seq"], message)
        except WireError as error:
            self._board.refused += error.reason != Reason.CREDIT
            log.debug("refused", **keys, reason=error.reason.value, why=str(error))
            # the state of a later epoch would mislead a producer that is in an earlier one
            stale = error.reason == Reason.STALE_EPOCH
            held = None if stale else self._producers.find(name)
            state = self._state(held) if held else {}
            return state | {"type": "refused"} | keys | error.fields()
        self._unacknowledged[name] = producer
        return None

    def _take(self, producer: ProducerState, sequence: int, message: _Message) -> None:
        if self._producers.is_duplicate(producer, sequence):
            return
        if self._life not in ACCEPTING:
            problem = f"the daemon accepts no more batches (state: {self._life})"
            raise WireError(Reason.DRAINING, problem)
        size = size_of(message.frames)
        if size > self._settings.max_batch_bytes:
            problem = f"a batch of {size} bytes exceeds {self._settings.max_batch_bytes} bytes"
            raise WireError(Reason.TOO_LARGE, problem)
        self._producers.check_room(producer, size)
        make, _ = self._makers()
        batch, names = message.decoded or decode_batch(message.header, message.frames, make)
        self._producers.accept(producer, size)
        item = Accepted(
            self._number, producer, producer.epoch, sequence, size, batch, names, time.monotonic()
        )
        self._number += 1
        self._forward(item)

    def _acknowledge(self, socket: zmq.Socket[bytes]) -> None:
        for producer in self._unacknowledged.values():
            self._answer(producer.route, self._state(producer) | {"type": "ack"})
        self._unacknowledged.clear()
        # a ROUTER drops answers to a peer that is gone or does not read; the next one replaces them
        send_all(socket, self._answers)
        self._answers.clear()
        board, producers = self._board, self._producers
        board.queued_bytes, board.queued_batches = producers.queued_bytes, producers.queued_batches
        board.producers, board.active_producers = len(producers), producers.active
        if self._life == DRAINING and not producers.queued_batches and not self.drained:
            self.drained = True
            self._notify()

    def _state(self, producer: ProducerState) -> Header:
        """Fields of every answer, cumulative: the next answer makes up for a lost one."""
        return {
            "state": self._life,
            "producer": producer.name,
            "epoch": producer.epoch,
            "received": producer.received,
            # nothing outlives the daemon yet
            "durable": producer.received,
            "matched": producer.matched,
            "credit": self._producers.credit(producer),
        }

    def _answer(self, route: bytes, fields: Header) -> None:
        header = {"v": PROTOCOL, "stream": self._board.stream, "session": self._board.epoch}
        header |= fields
        self._answers.append([route, *answer(header)])
