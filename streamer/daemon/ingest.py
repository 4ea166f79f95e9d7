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
from streamer.daemon.worker import POLL_MILLISECONDS, InboxWorker
from streamer.matching.matcher import MakeTogether
from streamer.protocol.batch_messages import Make, decode_batch
from streamer.protocol.header import (
    MAX_HEADER_BYTES,
    PROTOCOL,
    Header,
    Reason,
    WireError,
    integer,
    pack,
    shown,
    size_of,
    text,
    unpack,
)
from streamer.protocol.transport.receiving import receive
from streamer.protocol.transport.sending import send_all
from streamer.sequences.read_batch import ReadBatch

# messages, and bytes, taken before acknowledgements go out and the inbox is looked at
_BURST = 64
_BURST_BYTES = 1 << 24
# to refuse what has come, before the socket is closed
_END_SECONDS = 1.0
# for producers to read the end: libzmq drops what a peer has not read when its connection ends
_READ_SECONDS = 0.2
# a message of the protocol has at most 5 frames; of others no more than this is looked at
_MAX_FRAMES = 8

log = structlog.get_logger("ingest")


class _Message:
    """A message of a producer: ``frames`` without the header, which is looked at when asked for."""

    def __init__(self, route: bytes, frames: list[memoryview]) -> None:
        self.route = route
        self.frames = frames[1:]
        self._first = frames[:1]
        self._header: Header | None = None
        # ahead of its turn, together with others
        self.decoded: tuple[ReadBatch, bytes] | None = None

    @property
    def header(self) -> Header:
        """The fields of the header; WireError if there is none."""
        if self._header is None:
            if not self._first:
                raise WireError(Reason.MALFORMED, "a message without frames")
            self._header = unpack(self._first[0])
        return self._header

    def batch(self, make: Make) -> tuple[ReadBatch, bytes]:
        """The batch, as ``decode_batch`` tells it; WireError for any fault."""
        return self.decoded or decode_batch(self.header, self.frames, make)


class IngestWorker(InboxWorker):
    """Accepts batches and hands them to ``forward`` in the order of acceptance.

    ``make`` is as in ``decode_batch``; the letters that it is given stay as they are.
    ``make_together`` tells how many batches are made in one step, where there is a way.
    ``inbox`` gets every accepted batch back once its results are out. ``drained`` is set once
    the daemon drains and nothing is left.
    """

    def __init__(
        self,
        board: Board,
        context: zmq.Context[zmq.Socket[bytes]],
        ended: Callable[[], None],
        forward: Callable[[Accepted], None],
        make: Make = ReadBatch.from_letters,
        make_together: Callable[[], MakeTogether | None] = lambda: None,
    ) -> None:
        super().__init__("ingest", board.config.ingest.endpoint, context, ended)
        self.inbox: Mailbox[Accepted] = Mailbox()
        self.opened = False
        self._board = board
        self._life = board.state
        self._forward = forward
        self._make = make
        self._make_together = make_together
        self._settings = board.config.ingest
        self._producers = Producers(self._settings.memory_bytes, self._settings.max_batch_bytes)
        self._number = 0
        self._unacknowledged: dict[str, ProducerState] = {}
        # messages for producers, sent together
        self._answers: list[list[bytes]] = []
        self.drained = False

    def work(self) -> None:
        """Serve producers until told to stop."""
        frame_limit = self._settings.max_batch_bytes + MAX_HEADER_BYTES
        socket = self.bind(
            zmq.ROUTER,
            {
                zmq.MAXMSGSIZE: frame_limit,
                # what waits in front of the credit: a few messages a connection, so that more
                # can come while those before them are decoded
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
        """Give credit: the engine can take batches now."""
        self.opened = True
        self.inbox.wake()

    def _turn(self, socket: zmq.Socket[bytes]) -> int:
        """Answer what has come: how many messages.

        The state of the daemon is read once a turn: what a turn accepts, the credit it gives and
        the state that its answers name agree. The drain waits for every batch that was accepted.
        """
        before, self._life = self._life, self._board.state
        self._take_back()
        if self._life != before and self._life not in ACCEPTING:
            # those who wait for credit, and those with nothing to send, say nothing and are told
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
                answer = self._handle(message)
            except WireError as error:
                self._board.refused += 1
                answer = {"type": "refused"} | error.fields()
            if answer is not None:
                self._answer(message.route, answer)
        return len(burst)

    def _decode_ahead(self, burst: Sequence[_Message]) -> None:
        """Decode the batches that are likely to be taken, together."""
        make = self._make_together()
        if make is None:
            return
        likely = [message for message in burst if self._is_likely(message)]
        decoded = decode_together([(m.header, m.frames) for m in likely], make)
        for message, found in zip(likely, decoded, strict=True):
            message.decoded = found

    def _is_likely(self, message: _Message) -> bool:
        """Whether it is a new batch of a known producer, as far as its header tells."""
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
        """Do what one message asks; the answer, None where the next acknowledgement is it."""
        header = message.header
        kind = header.get("type")
        if kind not in ("hello", "batch"):
            problem = f"type {shown(kind)}, must be 'hello' or 'batch'"
            raise WireError(Reason.MALFORMED, problem)
        name, epoch = text(header, "producer"), integer(header, "epoch")
        keys: Header = {"producer": name, "epoch": epoch}
        try:
            producer = self._producers.hear(name, epoch, message.route)
            if kind == "hello":
                return self._state(producer) | {
                    "type": "welcome",
                    "max_batch_bytes": self._settings.max_batch_bytes,
                    "durability": self._board.config.journal.durability,
                }
            sequence = keys["seq"] = integer(header, "seq", 1)
            self._take(producer, sequence, message)
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
            problem = f"the daemon takes no more batches (state: {self._life})"
            raise WireError(Reason.DRAINING, problem)
        size = size_of(message.frames)
        if size > self._settings.max_batch_bytes:
            problem = f"a batch of {size} bytes, at most {self._settings.max_batch_bytes} are taken"
            raise WireError(Reason.TOO_LARGE, problem)
        self._producers.check_room(producer, size)
        batch, names = message.batch(self._make)
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
        # a ROUTER drops what is for a peer that has gone or does not read: answers are cumulative
        send_all(socket, self._answers)
        self._answers.clear()
        board, producers = self._board, self._producers
        board.queued_bytes, board.queued_batches = producers.queued_bytes, producers.queued_batches
        board.producers, board.active_producers = len(producers), producers.active
        if self._life == DRAINING and not producers.queued_batches and not self.drained:
            self.drained = True
            self._ended()

    def _state(self, producer: ProducerState) -> Header:
        """What every answer says: cumulative, so that a lost one is made good by the next."""
        return {
            "state": self._life,
            "producer": producer.name,
            "epoch": producer.epoch,
            "received": producer.received,
            # nothing outlives the daemon yet: durable is what it has accepted
            "durable": producer.received,
            "matched": producer.matched,
            "credit": self._producers.credit(producer),
        }

    def _answer(self, route: bytes, answer: Header) -> None:
        header = {"v": PROTOCOL, "session": self._board.epoch} | answer
        self._answers.append([route, pack(header)])
