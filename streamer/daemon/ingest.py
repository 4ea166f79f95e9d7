"""The ingest thread: batches of reads in, acknowledgements, refusals and credit out.

Batches that came together are checked and decoded by a few kernel calls: one by one, each checksum
and each pass over letters would release and retake the GIL, which limits a daemon on a GPU. Damage
and unusual names are left to ``decode_batch``, which reports errors.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import structlog
import zmq
from numba import carray  # type: ignore[attr-defined]

from streamer.daemon.batch_record import Accepted, GrowingReads
from streamer.daemon.core.ingest import Contents, IngestCore, Settings
from streamer.daemon.core.producers import KnownProducer
from streamer.daemon.core.rights import EVERYTHING, Rights
from streamer.daemon.daemon_status import DaemonStatus
from streamer.daemon.security.known_peers import KnownPeers
from streamer.daemon.socket_worker import SocketWorker
from streamer.daemon.worker import POLL_MILLISECONDS, Mailbox
from streamer.matching.match_engine import MakeTogether
from streamer.protocol import wire
from streamer.protocol.checksum_kernels import combine, continue_crc32c
from streamer.protocol.payloads import NO_NAMES, Make, decode_batch, with_context
from streamer.protocol.transport.curve import Sender
from streamer.protocol.transport.frames import receive, send_all
from streamer.sequences.read_batch import PackedNames, ReadBatch, count_names
from trie.cpu.intrinsics import array_address, pointer
from trie.cpu.jit import njit
from trie.windows import ascending

if TYPE_CHECKING:
    from streamer.daemon.security.gatekeeper import Gatekeeper

# mypy: no-check-untyped-defs
# (kernels are typed by numba, by the arguments of their first call)


# header, names, offsets, letters, checksum; a context may precede the checksum
_FRAMES = 5
_NAMES, _OFFSETS, _LETTERS = range(1, _FRAMES - 1)


def decode_batches(
    messages: Sequence[tuple[wire.Header, Sequence[memoryview]]], make: MakeTogether
) -> list[tuple[ReadBatch, bytes] | None]:
    """The result of ``decode_batch`` for each batch, or None: then call ``unseal`` and that.

    messages: the fields of each header, and all frames of the message. Where the result is not
    None, the checksum in the last frame is right. The letters stay in their frames.
    """
    decoded: list[tuple[ReadBatch, bytes] | None] = [None] * len(messages)
    address = wire.crc32c_address()
    regular = [
        at
        for at, (header, frames) in enumerate(messages)
        if header.get("form") == "columns"
        and _FRAMES <= len(frames) <= _FRAMES + 1
        and len(frames[_OFFSETS]) >= 8
        and not len(frames[_OFFSETS]) % 8
        and len(frames[-1]) == wire.SEAL_BYTES
    ]
    if not (address and regular) or sys.byteorder == "big":
        return decoded
    sent = [messages[at][1] for at in regular]
    sizes = np.array([[*map(len, frames[:_FRAMES])] for frames in sent], dtype=np.int64)
    places = np.array([[*map(_address, frames[:_LETTERS])] for frames in sent], dtype=np.uint64)
    ends = np.zeros(len(regular) + 1, dtype=np.int64)
    np.cumsum(sizes[:, _OFFSETS] // 8, out=ends[1:])
    # frames may be unaligned
    offsets = np.empty(ends[-1], dtype=np.int64)
    sums = np.empty(len(regular), dtype=np.uint32)
    names = np.empty(len(regular), dtype=np.int64)
    _inspect(np.uint64(address), places, sizes, ends, offsets, sums, names)
    by_batch = zip(regular, names.tolist(), ends.tolist(), sent, strict=False)
    columns = [
        (
            at,
            PackedNames(bytes(frames[_NAMES]), count),
            offsets[begin : begin + count + 1],
            frames[_LETTERS],
        )
        for at, count, begin, frames in by_batch
        if count >= 0
    ]
    if not columns:
        return decoded
    sums = sums[names >= 0]
    batches = make([column[1:] for column in columns], sums)
    for (at, packed, *_), batch, checksum in zip(columns, batches, sums.tolist(), strict=True):
        *further, seal = messages[at][1][_LETTERS + 1 :]
        if batch is None or wire.crc32c(further, checksum) != int.from_bytes(seal, "little"):
            continue
        # ``decode_batch`` reports what is wrong with a context
        with suppress(wire.WireError):
            decoded[at] = with_context(batch, further), packed.packed
    return decoded


def _address(frame: memoryview) -> int:
    return array_address(np.frombuffer(frame, np.uint8)) if len(frame) else 0


@njit(cache=True, nogil=True)
def _inspect(address, places, sizes, ends, offsets, sums, names):
    """Store each message's checksum up to its offsets, its offsets and its number of names.

    The number is -1 if ``count_names`` cannot count them or the offsets are inconsistent.
    """
    for i in range(sizes.shape[0]):
        value = np.uint32(0)
        for j in range(_LETTERS):
            if sizes[i, j]:
                value = continue_crc32c(address, value, places[i, j], sizes[i, j])
        sums[i] = value
        count = np.int64(-1)
        if sizes[i, _NAMES]:
            count = count_names(carray(pointer(places[i, _NAMES]), sizes[i, _NAMES], np.uint8))
        own = offsets[ends[i] : ends[i + 1]]
        there = carray(pointer(places[i, _OFFSETS]), sizes[i, _OFFSETS], np.uint8)
        here = own.view(np.uint8)
        for at in range(here.size):
            here[at] = there[at]
        fine = own.size == count + 1 and own[0] == 0 and own[-1] == sizes[i, _LETTERS]
        names[i] = count if fine and ascending(own) else -1


# messages and bytes received before acknowledgements go out and the inbox is read
_BURST = 64
_BURST_BYTES = 1 << 24
# to refuse messages that have already come, before the socket is closed
_END_SECONDS = 1.0
# to let producers read the last answers: libzmq drops unread messages when a connection ends
_READ_SECONDS = 0.2
# a message of the protocol has at most 5 frames; further frames are dropped
_MAX_FRAMES = 8
# the fields of a refused message that are logged
_LOGGED = "producer", "epoch", "seq", "reason"

log = structlog.get_logger("ingest")


class _Message:
    """A message of a producer: all frames, and those between the header and the checksum.

    rights: those of its sender.
    """

    def __init__(self, route: bytes, frames: list[memoryview], rights: Rights) -> None:
        self.route = route
        self.rights = rights
        self.sealed = frames
        self.frames = frames[1:-1]
        self._header: wire.Header | None = None
        # the batch, if it was decoded ahead of time together with others
        self.decoded: tuple[ReadBatch, bytes] | None = None

    @property
    def header(self) -> wire.Header:
        """The fields of the header, unpacked on demand; WireError if there is none."""
        if self._header is None:
            if not self.sealed:
                raise wire.malformed("a message without frames")
            self._header = wire.unpack(self.sealed[0])
        return self._header

    @property
    def content(self) -> int:
        """The checksum of the frames, from that of the message; WireError if it is wrong."""
        # a batch that was decoded ahead has been checked
        if self.decoded is None:
            wire.unseal(self.sealed)
        whole = int.from_bytes(self.sealed[-1], "little")
        return int(combine(wire.crc32c(self.sealed[:1]), whole, wire.size_of(self.frames)))


class IngestWorker(SocketWorker):
    """Accepts batches and passes them to ``forward`` in the order of acceptance.

    ``makers`` returns a function that makes a batch, as in ``decode_batch``, and one that makes
    many in one step, or None. ``drained`` is set once the daemon drains and no batch is left.
    known, number, content_of: as in ``IngestCore``. begin, forget: with a journal, called with the
    core's ``epochs`` and ``silent``. forget_seconds: as in ``Settings``.
    """

    def __init__(
        self,
        status: DaemonStatus,
        context: zmq.Context[zmq.Socket[bytes]],
        notify: Callable[[], None],
        forward: Callable[[Accepted], None],
        makers: Callable[[], tuple[Make, MakeTogether | None]],
        *,
        known: Sequence[KnownProducer] = (),
        number: int = 0,
        content_of: Contents = lambda *_: None,
        begin: Callable[[Sequence[tuple[str, int]]], None] | None = None,
        forget: Callable[[Sequence[str]], None] | None = None,
        forget_seconds: float = 0.0,
        gate: Gatekeeper | None = None,
    ) -> None:
        super().__init__("ingest", status, context, notify, gate)
        self._peers = KnownPeers(gate, "ingest")
        # calls of the core
        self.inbox: Mailbox[Callable[[], None]] = Mailbox()
        # routes of connections that are ended after one answer
        self._unknown: set[bytes] = set()
        self.drained = False
        self._forward = forward
        self._makers = makers
        self._limits = status.config.ingest
        settings = Settings(
            status.stream,
            status.epoch,
            status.config.journal.durability,
            self._limits.memory_bytes,
            self._limits.max_batch_bytes,
            stores_epochs=begin is not None,
            forget_seconds=forget_seconds,
            decides=bool(status.config.decision.names),
        )
        self.core = IngestCore(settings, known=known, number=number, content_of=content_of)
        self._begin = begin or self.core.begun
        self._forget = forget or self.core.forgotten

    def tell(self, happened: Callable[..., None], *arguments: Any) -> None:
        """Call this method of ``core`` in the next turn; from any thread."""
        self.inbox.put(partial(happened, *arguments))

    # ---- the thread ----------------------------------------------------------------------------

    def work(self) -> None:
        """Serve producers until told to stop."""
        frame_limit = self._limits.max_batch_bytes + wire.MAX_HEADER_BYTES
        socket = self.bind(
            zmq.ROUTER,
            {
                zmq.MAXMSGSIZE: frame_limit,
                # a few messages for each connection, so that some arrive while others are decoded
                zmq.RCVHWM: min(1000, max(8, self._limits.memory_bytes // frame_limit // 4)),
                zmq.SNDHWM: 1000,
                # a client that reconnects with its routing id takes over from its old connection;
                # with keys nobody does, since that may be another client's connection
                zmq.ROUTER_HANDOVER: int(not self._peers.guarded),
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
            if len(self.core.producers):
                time.sleep(_READ_SECONDS)
        finally:
            self.release(socket)

    def _turn(self, socket: zmq.Socket[bytes]) -> int:
        """Answer the messages that have come; returns how many.

        The state of the daemon is read once a turn, so the batches that a turn accepts, its credit
        and the state in its answers agree. The drain waits for every accepted batch.
        """
        with self.stage_work.step("messages to be taken and answered"):
            self._take_in()
            taken = self._receive(socket)
            if epochs := self.core.epochs():
                self._begin(epochs)
            if names := self.core.silent():
                self._forget(names)
            self._send(socket)
        self.stage_work.done += 1
        return taken

    def _take_in(self) -> None:
        now = time.monotonic()
        self._peers.sweep(now)
        self.core.tick(now, time.time_ns() // 1_000_000)
        self.core.life(self._status.state)
        waiting = self.inbox.take()
        self.stage_work.taken = len(waiting)
        for happened in waiting:
            happened()

    def _receive(self, socket: zmq.Socket[bytes]) -> int:
        senders: list[Sender] | None = [] if self._peers.guarded else None
        received = receive(
            socket, messages=_BURST, frames=_MAX_FRAMES + 1, size=_BURST_BYTES, senders=senders
        )
        # the first frame is the route
        if senders is None:
            burst = [_Message(bytes(frames[0]), frames[1:], EVERYTHING) for frames in received]
        else:
            burst = self._admitted(received, senders)
        self.stage_work.taken = len(burst)
        self._decode_ahead(burst)
        for message in burst:
            self._take(message)
        return len(received)

    def _admitted(
        self, received: Sequence[list[memoryview]], senders: Sequence[Sender]
    ) -> list[_Message]:
        admitted: list[_Message] = []
        for frames, sender in zip(received, senders, strict=True):
            route = bytes(frames[0])
            try:
                rights = self._peers.rights(route, sender)
            except wire.WireError as error:
                self.core.refuse(route, error, {})
                self._unknown.add(route)
                continue
            if rights is not None:
                admitted.append(_Message(route, frames[1:], rights))
        return admitted

    def _decode_ahead(self, burst: Sequence[_Message]) -> None:
        """Decode together the batches that will probably be accepted."""
        _, make = self._makers()
        if make is None:
            return
        likely = [message for message in burst if self._is_likely(message)]
        decoded = decode_batches([(m.header, m.sealed) for m in likely], make)
        for message, content in zip(likely, decoded, strict=True):
            message.decoded = content

    def _is_likely(self, message: _Message) -> bool:
        try:
            size = wire.size_of(message.frames)
            return self.core.is_likely(message.header, size, message.rights)
        except wire.WireError:
            return False

    def _take(self, message: _Message) -> None:
        try:
            # the checksum comes first: no field of a damaged message is trusted
            content, header = message.content, message.header
        except wire.WireError as error:
            self.core.refuse(message.route, error, {})
            return
        if message.frames and header.get("type") == "hello":
            problem = f"a hello is a header and its checksum, not {len(message.sealed)} frames"
            longer = wire.malformed(problem)
            self.core.refuse(message.route, longer, header, message.rights)
            return
        size = wire.size_of(message.frames)
        offer = self.core.message(message.route, header, size, content, message.rights)
        if offer is None:
            return
        make, _ = self._makers()
        try:
            batch, names = message.decoded or decode_batch(header, message.frames, make)
        except wire.WireError as error:
            self.core.refuse(message.route, error, header)
            return
        growing = None
        if offer.growing:
            growing = GrowingReads(batch, names)
            batch, names = make([], np.zeros(1, dtype=np.int64), b""), NO_NAMES
        self._forward(self.core.accept(offer, batch, names, growing))

    def _may_have(self, route: bytes, header: wire.Header) -> bool:
        """Whether the client that now has the route may get an answer."""
        rights = self._peers.reached(route)
        if header["type"] == "refused":
            return rights is not None or route in self._unknown
        # an answer has the state of a producer, perhaps that of the route's previous client
        return rights is not None and rights.may_send(header["producer"])

    def _send(self, socket: zmq.Socket[bytes]) -> None:
        messages: list[list[wire.Buffer]] = []
        frames: list[wire.Buffer] = []
        last: wire.Header | None = None
        for route, header in self.core.answers():
            if not self._may_have(route, header):
                continue
            if header is not last:
                frames, last = wire.answer(header), header
                if header["type"] == "refused":
                    about = {key: header[key] for key in _LOGGED if key in header}
                    log.debug("refused", **about, why=header["message"])
            messages.append([route, *frames])
        # the status first: a client that has an answer finds its message counted there
        status, core = self._status, self.core
        producers = core.producers
        status.refused = core.refused
        status.queued_bytes, status.queued_batches = (
            producers.queued_bytes,
            producers.queued_batches,
        )
        status.producers, status.active_producers = len(producers), producers.active
        status.undurable = core.undurable_batches, core.undurable_bytes, core.undurable_since
        # a ROUTER drops answers to a peer that is gone or does not read; the next one has all
        send_all(socket, messages)
        self._unknown.clear()
        self.stage_work.taken = 0
        if core.drained and not self.drained:
            self.drained = True
            self._notify()
