"""``Producer``: sends batches of reads, keeps each until it is durable, and obeys credit."""

from __future__ import annotations

import os
import socket as host
import time
from collections.abc import Callable

import zmq

from streamer.client.account import Account
from streamer.client.connection import Connection, Context
from streamer.client.errors import (
    DaemonError,
    DaemonSilentError,
    LostBatchesError,
    RefusedError,
    StalledError,
)
from streamer.client.parts import Reads, parts
from streamer.protocol.checksums import combine, crc32c
from streamer.protocol.header import (
    PROTOCOL,
    Header,
    Reason,
    WireError,
    integer,
    pack,
    seal,
    text,
    unpack,
    unseal,
)
from streamer.protocol.transport.copying import Copier
from streamer.sequences.read_batch import ReadBatch

# the daemon's messages are a header each; further frames are dropped
_MOST_FRAMES = 8
# after this long without an answer the producer asks for the daemon's state
_ASK_SECONDS = 1.0
_POLL_SECONDS = 0.1


def _session(header: Header) -> tuple[str, int]:
    """The stream and the run of the daemon that an answer is from."""
    return text(header, "stream"), integer(header, "session")


_FINAL_STATES = ("draining", "ended", "failed")
"""Of a daemon that takes no more batches."""


class Producer(Connection):
    """Sends batches of reads to the daemon at ``endpoint``, in order, each with one effect.

    name: of this producer, the same in every run that continues another; by default it is new.
    answer_seconds: how long the daemon may be silent when it owes an answer.

    Whatever ended a call early, ``reads_sent``, ``reads_acknowledged``, ``reads_matched`` and
    ``last_acknowledged`` tell how far it came, and ``state`` is the last known one of the daemon.
    A batch may have gone out without an answer so far: ``settle`` waits for that. As long as no
    batch was refused, the reads acknowledged are the first of those handed over.
    """

    def __init__(
        self,
        endpoint: str,
        *,
        name: str | None = None,
        answer_seconds: float = 5.0,
        context: Context | None = None,
    ) -> None:
        # IMMEDIATE: nothing is queued for a daemon that is not there
        super().__init__(endpoint, answer_seconds, context, zmq.DEALER, {zmq.IMMEDIATE: 1})
        self.name = name or f"{host.gethostname()}-{os.getpid()}-{os.urandom(3).hex()}"
        self._account = Account(time.time_ns() // 1_000_000)
        self.received = 0
        self.matched = 0
        self._copier = Copier(self._socket, frames=_MOST_FRAMES)
        # the unacknowledged batches before this one are on their way
        self._next = 1
        # nothing more is sent
        self._settling = False
        # hellos that may have gone out, and answers to them
        self._greetings = self._welcomes = 0
        # of the daemon, as last reported
        self.state = ""
        self._credit = 0
        self._synced = False
        # the batch whose sending was interrupted: a refusal may be of the part of it that went out
        self._torn = 0
        self._blocked = False
        self._session: tuple[str, int] | None = None
        self._max_batch = 0
        self._heard = self._asked = 0.0
        self._progress = time.monotonic()

    # ---- how far it came -----------------------------------------------------------------------

    @property
    def epoch(self) -> int:
        """The epoch in which batches are numbered now."""
        return self._account.epoch

    @property
    def durable(self) -> int:
        """Batches of this epoch that are acknowledged."""
        return self._account.durable

    @property
    def reads_sent(self) -> int:
        """Reads that have gone out, in all epochs, whatever became of them."""
        return self._account.sent

    @property
    def reads_acknowledged(self) -> int:
        """Reads that the daemon has accepted, in all epochs, without those that it has lost."""
        return self._account.acknowledged.reads

    @property
    def reads_matched(self) -> int:
        """Reads whose results are known to have been published."""
        return self._account.matched.reads

    @property
    def last_acknowledged(self) -> str | None:
        """The name of the last read that the daemon has accepted."""
        return self._account.acknowledged.last

    # ---- what users call ---------------------------------------------------------------------

    def connect(self, *, timeout: float | None = None) -> None:
        """Return once the daemon has answered; ``send`` and ``flush`` do so by themselves."""
        self._owes_answer()
        self._until(lambda: self._synced, timeout, "its answer")

    def send(self, reads: ReadBatch | Reads, *, timeout: float | None = None) -> None:
        """Send a batch: returns when it is on its way, which requires credit.

        reads: a ReadBatch or (name, letters) pairs; a batch larger than the daemon takes is split,
        and the reads before one that is too large by itself are sent. timeout: seconds without any
        progress after which StalledError is raised and the batch is not sent. RefusedError is about
        this or an earlier batch; the others go on.
        """
        self._ask_if_ended()
        self.connect(timeout=timeout)
        batch = reads if isinstance(reads, ReadBatch) else list(reads)
        for part in parts(batch, self._max_batch, self.endpoint):
            self._account.held.append(part)
            try:
                self._until(self._all_sent, timeout, "credit")
            except StalledError:
                held = self._account.held
                if held and held[-1] is part:
                    held.pop()
                raise

    def flush(self, *, timeout: float | None = None, matched: bool = False) -> None:
        """Return once everything sent is durable, and with ``matched`` matched and published.

        timeout: seconds without any progress after which StalledError is raised.
        """
        if self._account.held:
            self._ask_if_ended()
        self._owes_answer()
        self._until(lambda: self._synced and not self._account.held, timeout, "acknowledgements")
        if matched:
            self._until(lambda: self.matched >= self.durable, timeout, "results")

    def heed(self) -> None:
        """Take the answers that have come, without waiting; for producers that send rarely.

        When a connection ends, libzmq drops the messages that nobody has taken.
        """
        self._receive(0)
        self._transmit()

    def settle(self, *, timeout: float | None = None) -> None:
        """Send nothing more, and return once the daemon has answered for all that has gone out.

        From then on ``reads_acknowledged`` is final. For use after an interrupt or an error;
        ``send`` and ``flush`` go on with the batches that remain.
        """
        self._owes_answer()
        # messages arrive in order: the answer to a new greeting comes after those to all batches
        awaited = self._greetings + 1
        self._greet_anew()
        try:
            self._settling = True
            self._until(lambda: self._welcomes >= awaited, timeout, "its answer")
        finally:
            self._settling = False

    def close(self) -> None:
        """Close the connection. What is not acknowledged may be lost: ``flush`` first."""
        super().close()

    def _finish(self) -> None:
        self.flush()

    # ---- waiting -------------------------------------------------------------------------------

    def _owes_answer(self) -> None:
        """From now on silence counts, and the lack of progress."""
        self._heard = self._progress = time.monotonic()

    def _all_sent(self) -> bool:
        return self._next > self._account.total

    def _until(self, done: Callable[[], bool], timeout: float | None, what: str) -> None:
        """Exchange messages until ``done``."""
        self._receive(0)
        self._transmit()
        while not done():
            if self._synced and self.state in _FINAL_STATES and not self._all_sent():
                raise self._takes_no_more()
            now = time.monotonic()
            if now - self._heard > self._answer_seconds:
                if self.state in _FINAL_STATES:
                    raise self._takes_no_more()
                raise DaemonSilentError(self.endpoint, self._answer_seconds)
            if timeout is not None and now - self._progress > timeout:
                problem = f"waited {timeout:g} s for {what}"
                raise StalledError(self.endpoint, problem)
            silent = now - max(self._heard, self._asked)
            if silent > _ASK_SECONDS or not (self._synced or self._asked):
                self._ask()
            self._receive(_POLL_SECONDS)
            self._transmit()

    def _ask_if_ended(self) -> None:
        """The daemon took no more when it was last heard, but another may answer by now."""
        if self.state in _FINAL_STATES:
            self._greet_anew()

    # ---- messages out --------------------------------------------------------------------------

    def _ask(self) -> None:
        """Send ``hello``: the answer states what the daemon has, whichever messages were lost."""
        try:
            self._greet()
        except zmq.Again:
            self._greetings -= 1
            self._blocked = True
            return
        self._asked = time.monotonic()

    def _greet(self) -> None:
        # counted first: one too many, after an interrupt, costs a second; one too few an answer
        self._greetings += 1
        self._socket.send_multipart(seal([pack(self._header("hello"))]), zmq.NOBLOCK)

    def _greet_anew(self) -> None:
        """Send nothing else before the next ``hello`` is answered."""
        self._synced = False
        self._asked = 0.0

    def _transmit(self) -> None:
        """Send what credit allows."""
        if not self._synced or self._settling:
            return
        account = self._account
        first, behind = max(self.received - self.durable, 0), self._next - 1 - self.durable
        on_their_way = sum(held.size for held in account.held[first : max(first, behind)])
        while self._next <= account.total:
            held = account.held[self._next - 1 - self.durable]
            # a lone batch may exceed what little credit there is: the daemon decides
            allowed = held.size + on_their_way <= self._credit
            if not allowed and (on_their_way or not self._credit):
                return
            header = self._header("batch") | {
                "seq": self._next,
                "form": "columns",
            }
            head = pack(header)
            crc = combine(crc32c([head]), held.checksum, held.size)
            before, held.sent = held.sent, True
            try:
                self._socket.send_multipart(
                    seal([head, *held.frames], crc), zmq.NOBLOCK, copy=False
                )
            except zmq.Again:
                held.sent = before
                self._blocked = True
                return
            except BaseException:
                # interrupted: if a part of the message is out, this hello ends it and the daemon
                # refuses the message; if not, it is a hello; then the daemon is asked what it has
                self._greet_anew()
                self._torn = self._next
                self._greet()
                raise
            self._next += 1
            on_their_way += held.size
            self._progress = time.monotonic()

    def _header(self, kind: str) -> Header:
        return {"v": PROTOCOL, "type": kind, "producer": self.name, "epoch": self.epoch}

    # ---- messages in ---------------------------------------------------------------------------

    def _receive(self, seconds: float) -> None:
        if seconds:
            events = zmq.POLLIN | zmq.POLLOUT if self._blocked else zmq.POLLIN
            self._blocked = False
            self._socket.poll(int(seconds * 1000), events)
        while (received := self._copier.take()) is not None:
            frames, crc = received
            try:
                self._hear(unpack(unseal(frames, crc=crc)[0]))
            except WireError as error:
                raise DaemonError(self.endpoint, f"invalid reply: {error}") from None

    def _hear(self, header: Header) -> None:
        self._heard = time.monotonic()
        kind = header.get("type")
        if header.get("epoch", self.epoch) != self.epoch:
            return  # about batches that have been renumbered since
        if kind == "welcome":
            self._welcome(header)
        elif kind == "ack" and _session(header) == self._session:
            self._advance(header)
        elif kind == "refused":
            self._refused(header)
        elif kind == "reply":
            problem = "is the control socket of a daemon: reads go to its ingest socket"
            raise DaemonError(self.endpoint, problem)

    def _welcome(self, header: Header) -> None:
        self._welcomes += 1
        session = _session(header)
        self._max_batch = integer(header, "max_batch_bytes", 1)
        if self._session not in (None, session):
            # a restarted daemon knows nothing of this producer
            lost = self.durable - self.matched
            self.state = ""
            self._begin(self._account.restarted(lost, self._later_epoch()))
            self._session = session
            if lost:
                raise LostBatchesError(self.endpoint, lost)
            return
        self._session = session
        self._synced = True
        received = integer(header, "received")
        if received > self._account.total:
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
        self.matched = max(self.matched, matched)
        self._account = self._account.advanced(durable, self.matched)
        self._next = max(self._next, self.durable + 1)
        self._credit = integer(header, "credit")
        self.state = str(header.get("state", ""))

    def _takes_no_more(self) -> RefusedError:
        message = f"the daemon accepts no more batches (state: {self.state})"
        return RefusedError(self.endpoint, {"reason": Reason.DRAINING.value, "message": message})

    def _refused(self, header: Header) -> None:
        sequence = header.get("seq")
        reason = header.get("reason")
        if "received" in header:
            # batches before it may have been accepted, not yet acknowledged
            self._advance(header)
        on_its_way = isinstance(sequence, int) and self.durable < sequence < self._next
        if isinstance(sequence, int) and not on_its_way:
            return  # about a batch that will be sent again anyway
        if reason == Reason.CREDIT and isinstance(sequence, int):
            self._next = sequence
            self._credit = 0
        elif reason == Reason.GAP or sequence == self._torn:
            self._torn = 0
            self._greet_anew()
        else:
            if isinstance(sequence, int):
                self._begin(self._account.without(sequence, self._later_epoch()))
            raise RefusedError(self.endpoint, header)

    def _later_epoch(self) -> int:
        return max(self.epoch + 1, time.time_ns() // 1_000_000)

    def _begin(self, account: Account) -> None:
        """Go on in a new epoch, so that no number ever means two batches."""
        self._greet_anew()
        self.received = self.matched = 0
        self._next = 1
        self._credit = 0
        self._torn = 0
        # last: an interrupt before it leaves the epoch as it is, with an answer to wait for
        self._account = account
