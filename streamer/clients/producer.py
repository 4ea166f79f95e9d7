"""``Producer``: sends batches of reads, holds each until it is durable, and heeds credit."""

from __future__ import annotations

import os
import socket as host
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import islice
from types import TracebackType
from typing import Any

import numpy as np
import zmq

from streamer.clients.connection import Connection, Context
from streamer.clients.errors import (
    DaemonError,
    DaemonSilentError,
    LostBatchesError,
    RefusedError,
    StalledError,
)
from streamer.reads import ReadBatch
from streamer.transport.copying import Copier
from streamer.wire import (
    PROTOCOL,
    Buffer,
    Header,
    Reason,
    WireError,
    checksum,
    encode_batch,
    encode_reads,
    integer,
    pack,
    size_of,
    unpack,
)

# the daemon's messages are a header each; of others no more than this is looked at
_MOST_FRAMES = 8
# unanswered for so long, the daemon is asked how far it is
_ASK_SECONDS = 1.0
_POLL_SECONDS = 0.1

Reads = Iterable[tuple[str, str | bytes]]


@dataclass(slots=True)
class _Held:
    """A batch that is not durable yet."""

    frames: list[Buffer]
    size: int
    checksum: int


class Producer:
    """Sends batches of reads to the daemon at ``endpoint``, in order, each with one effect.

    name: of this producer, the same in every run that continues another; by default it is new.
    answer_seconds: how long the daemon may be silent when it owes an answer.
    """

    def __init__(
        self,
        endpoint: str,
        *,
        name: str | None = None,
        answer_seconds: float = 5.0,
        context: Context | None = None,
    ) -> None:
        self.endpoint = endpoint
        self.name = name or f"{host.gethostname()}-{os.getpid()}-{os.urandom(3).hex()}"
        self.epoch = time.time_ns() // 1_000_000
        self.received = 0
        self.durable = 0
        self.matched = 0
        self._answer_seconds = answer_seconds
        # IMMEDIATE: nothing is queued for a daemon that is not there
        self._connection = Connection(zmq.DEALER, endpoint, {zmq.IMMEDIATE: 1}, context)
        self._socket = self._connection.socket
        self._copier = Copier(self._socket, frames=_MOST_FRAMES, unchecked=_MOST_FRAMES)
        # batches durable + 1, durable + 2, ...; those before ``_next`` are on their way
        self._held: deque[_Held] = deque()
        self._next = 1
        self._credit = 0
        self._synced = False
        # the batch whose sending was interrupted: a refusal may be of the part of it that went out
        self._torn = 0
        self._blocked = False
        self._session: int | None = None
        self._max_batch = 0
        self._heard = self._asked = 0.0
        self._progress = time.monotonic()

    # ---- what users call ---------------------------------------------------------------------

    def connect(self, *, timeout: float | None = None) -> None:
        """Return once the daemon has answered; ``send`` and ``flush`` do so by themselves."""
        self._owes_answer()
        self._until(lambda: self._synced, timeout, "its answer")

    def send(self, reads: ReadBatch | Reads, *, timeout: float | None = None) -> None:
        """Hand a batch over: returns when it is on its way, which takes until there is credit.

        reads: a ReadBatch or (name, letters) pairs; one that is larger than the daemon takes is
        split. timeout: seconds without any progress after which StalledError is raised and the
        batch is not sent. RefusedError tells of this or an earlier batch; the others go on.
        """
        self.connect(timeout=timeout)
        pairs = None if isinstance(reads, ReadBatch) else list(reads)
        for part in self._parts(reads if isinstance(reads, ReadBatch) else pairs):
            self._held.append(part)
            try:
                self._until(self._all_sent, timeout, "credit")
            except StalledError:
                if self._held and self._held[-1] is part:
                    self._held.pop()
                raise

    def flush(self, *, timeout: float | None = None, matched: bool = False) -> None:
        """Return once everything sent is durable, with ``matched`` also matched and published.

        timeout: seconds without any progress after which StalledError is raised.
        """
        self._owes_answer()
        self._until(lambda: self._synced and not self._held, timeout, "acknowledgements")
        if matched:
            self._until(lambda: self.matched >= self.durable, timeout, "results")

    def close(self) -> None:
        """Close the connection. What is not acknowledged may be lost: ``flush`` first."""
        self._connection.close()

    def __enter__(self) -> Producer:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if kind is None:
                self.flush()
        finally:
            self.close()

    # ---- waiting -------------------------------------------------------------------------------

    def _owes_answer(self) -> None:
        """From now on silence counts, and the lack of progress."""
        self._heard = self._progress = time.monotonic()

    def _all_sent(self) -> bool:
        return self._next > self.durable + len(self._held)

    def _until(self, done: Callable[[], bool], timeout: float | None, what: str) -> None:
        """Exchange messages until ``done``."""
        self._receive(0)
        self._transmit()
        while not done():
            now = time.monotonic()
            if now - self._heard > self._answer_seconds:
                raise DaemonSilentError(self.endpoint, self._answer_seconds)
            if timeout is not None and now - self._progress > timeout:
                problem = f"waited {timeout:g} s for {what}"
                raise StalledError(self.endpoint, problem)
            silent = now - max(self._heard, self._asked)
            if silent > _ASK_SECONDS or not (self._synced or self._asked):
                self._ask()
            self._receive(_POLL_SECONDS)
            self._transmit()

    # ---- messages out --------------------------------------------------------------------------

    def _ask(self) -> None:
        """Say hello: the answer tells what the daemon has, wherever messages were lost."""
        header = self._header("hello")
        try:
            self._socket.send(pack(header), zmq.NOBLOCK)
        except zmq.Again:
            self._blocked = True
            return
        self._asked = time.monotonic()

    def _transmit(self) -> None:
        """Send what credit allows."""
        if not self._synced:
            return
        first, behind = max(self.received - self.durable, 0), self._next - 1 - self.durable
        on_their_way = sum(held.size for held in islice(self._held, first, max(first, behind)))
        while self._next <= self.durable + len(self._held):
            held = self._held[self._next - 1 - self.durable]
            # a batch that is alone may exceed what little credit there is: the daemon decides
            allowed = held.size + on_their_way <= self._credit
            if not allowed and (on_their_way or not self._credit):
                return
            header = self._header("batch") | {
                "seq": self._next,
                "form": "columns",
                "checksum": held.checksum,
            }
            try:
                self._socket.send_multipart([pack(header), *held.frames], zmq.NOBLOCK, copy=False)
            except zmq.Again:
                self._blocked = True
                return
            except BaseException:
                # interrupted: where a part of the message has gone a greeting ends it, which the
                # daemon refuses, and where none has it is a greeting; then it is asked what it has
                self._synced = False
                self._torn = self._next
                self._asked = 0.0
                self._socket.send(pack(self._header("hello")), zmq.NOBLOCK)
                raise
            self._next += 1
            on_their_way += held.size
            self._progress = time.monotonic()

    def _header(self, kind: str) -> Header:
        return {"v": PROTOCOL, "type": kind, "producer": self.name, "epoch": self.epoch}

    def _parts(self, reads: Any) -> Iterable[_Held]:
        """The batch in as many parts as its size makes necessary."""
        frames = encode_batch(reads) if isinstance(reads, ReadBatch) else encode_reads(reads)
        size = size_of(frames)
        if size <= self._max_batch:
            return [_Held(frames, size, checksum(frames))]
        if len(reads) <= 1:
            name = reads.names[0] if isinstance(reads, ReadBatch) else reads[0][0]
            problem = (
                f"read {name} makes a message of {size} bytes, at most "
                f"{self._max_batch} are taken (ingest.max_batch_bytes)"
            )
            raise DaemonError(self.endpoint, problem)
        half = len(reads) // 2
        return [*self._parts(_slice(reads, 0, half)), *self._parts(_slice(reads, half, len(reads)))]

    # ---- messages in ---------------------------------------------------------------------------

    def _receive(self, seconds: float) -> None:
        if seconds:
            events = zmq.POLLIN | zmq.POLLOUT if self._blocked else zmq.POLLIN
            self._blocked = False
            self._socket.poll(int(seconds * 1000), events)
        while (received := self._copier.take()) is not None:
            frames, _ = received
            try:
                header = unpack(frames[0] if frames else b"")
                self._hear(header)
            except WireError as error:
                raise DaemonError(self.endpoint, f"answered strangely: {error}") from None

    def _hear(self, header: Header) -> None:
        self._heard = time.monotonic()
        kind = header.get("type")
        if header.get("epoch", self.epoch) != self.epoch:
            return  # about batches that have been renumbered since
        if kind == "welcome":
            self._welcome(header)
        elif kind == "ack" and header.get("session") == self._session:
            self._advance(header)
        elif kind == "refused":
            self._refused(header)
        elif kind == "reply":
            problem = "is the control socket of a daemon: reads go to its ingest socket"
            raise DaemonError(self.endpoint, problem)

    def _welcome(self, header: Header) -> None:
        session = integer(header, "session")
        self._max_batch = integer(header, "max_batch_bytes", 1)
        if self._session not in (None, session):
            # a daemon that has been started anew knows nothing of this producer
            lost = self.durable - self.matched
            self._new_epoch()
            self._session = session
            if lost:
                raise LostBatchesError(self.endpoint, lost)
            return
        self._session = session
        self._synced = True
        received = integer(header, "received")
        if received > self.durable + len(self._held):
            problem = f"another producer uses the name '{self.name}' in the same epoch"
            raise DaemonError(self.endpoint, problem)
        self._advance(header)
        self._next = self.received + 1

    def _advance(self, header: Header) -> None:
        received, durable = integer(header, "received"), integer(header, "durable")
        matched = integer(header, "matched")
        if (received, durable, matched) > (self.received, self.durable, self.matched):
            self._progress = self._heard
        self.received = max(self.received, received)
        while self.durable < durable and self._held:
            self._held.popleft()
            self.durable += 1
        self.matched = max(self.matched, matched)
        self._next = max(self._next, self.durable + 1)
        self._credit = integer(header, "credit")
        state = header.get("state")
        if state in ("draining", "ended", "failed") and not self._all_sent():
            message = f"the daemon takes no more batches (state: {state})"
            raise RefusedError(self.endpoint, {"reason": Reason.DRAINING.value, "message": message})

    def _refused(self, header: Header) -> None:
        sequence = header.get("seq")
        reason = header.get("reason")
        if "received" in header:
            # what came before may have been accepted without an acknowledgement so far
            self._advance(header)
        on_its_way = isinstance(sequence, int) and self.durable < sequence < self._next
        if isinstance(sequence, int) and not on_its_way:
            return  # about a batch that is going to be sent again anyway
        if reason == Reason.CREDIT and isinstance(sequence, int):
            self._next = sequence
            self._credit = 0
        elif reason == Reason.GAP or sequence == self._torn:
            self._torn = 0
            self._synced = False
            self._asked = 0.0
        else:
            if isinstance(sequence, int):
                del self._held[sequence - 1 - self.durable]
                self._new_epoch()
            raise RefusedError(self.endpoint, header)

    def _new_epoch(self) -> None:
        """Number what is held from 1 again, so that no number ever means two batches."""
        self.epoch = max(self.epoch + 1, time.time_ns() // 1_000_000)
        self.received = self.durable = self.matched = 0
        self._next = 1
        self._credit = 0
        self._synced = False
        self._torn = 0
        self._asked = 0.0


def _slice(reads: Any, start: int, stop: int) -> Any:
    if not isinstance(reads, ReadBatch):
        return reads[start:stop]
    first, last = int(reads.offsets[start]), int(reads.offsets[stop])
    offsets: Any = (reads.offsets[start : stop + 1] - first).astype(np.int64)
    return ReadBatch(reads.names[start:stop], offsets, reads.bases[first:last])
