"""The producer without I/O: which message goes out next, and what an answer means.

A shell asks for messages (``hello`` if ``must_ask``, then ``batch`` until there is none), reports
what became of each, and passes in the answers. Methods may be interrupted between any two steps.
An ``Account`` has the batches and reads, and how far the daemon has processed them.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from streamer.client import client_errors
from streamer.protocol.wire import PROTOCOL, Buffer, Header, Reason, integer, malformed, text


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
    kept: list[Batch] = field(default_factory=list)
    acknowledged: Mark = Mark()
    matched: Mark = Mark()
    unmatched: tuple[Mark, ...] = ()
    dropped: int = 0

    @property
    def total(self) -> int:
        """The number of the last batch handed over."""
        return self.durable + len(self.kept)

    @property
    def sent(self) -> int:
        """Reads that have been sent, including those that were refused or lost."""
        on_their_way = sum(batch.reads for batch in self.kept if batch.sent)
        return self.acknowledged.reads + on_their_way + self.dropped

    def advanced(self, durable: int, matched: int, earlier: int | None = None) -> Account:
        """The account after batches up to ``durable`` were stored and up to ``matched`` matched.

        earlier: batches of earlier epochs that are not matched, None if unknown.
        """
        count = max(0, min(durable, self.total) - self.durable)
        last = self.acknowledged
        unmatched = list(self.unmatched)
        for sequence, batch in enumerate(self.kept[:count], self.durable + 1):
            last = Mark(sequence, last.reads + batch.reads, batch.last or last.last)
            unmatched.append(last)
        if not matched and earlier != 0:
            matched = -1
        done = bisect_right(unmatched, matched, key=lambda mark: mark.sequence)
        return replace(
            self,
            durable=self.durable + count,
            kept=self.kept[count:],
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
            kept=self.kept[:at] + self.kept[at + 1 :],
            # they are matched before any other batch, like ``earlier`` ones
            unmatched=tuple(replace(mark, sequence=0) for mark in self.unmatched),
            dropped=self.dropped + self.kept[at].reads,
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


# after this long without an answer the producer asks for the daemon's state
ASK_SECONDS = 1.0

# messages that are sent again because they were damaged, without any progress in between
_DAMAGED_AT_MOST = 3
_NEVER = float("-inf")

FINAL_STATES = ("draining", "ended", "failed")
"""Of a daemon that takes no more batches."""


class Outgoing(NamedTuple):
    """A message to send: its header, the frames that follow, and their checksum and bytes.

    sequence: of its batch, 0 for a hello.
    """

    header: Header
    frames: Sequence[Buffer] = ()
    checksum: int = 0
    size: int = 0
    sequence: int = 0


class ProducerCore:
    """A producer's batches, and its view of the daemon at ``endpoint``.

    epoch: of its first batches, at best milliseconds since 1970. answer_seconds: how long the
    daemon may be silent when it owes an answer. Times are seconds of any clock that never goes
    back.
    """

    def __init__(self, endpoint: str, name: str, epoch: int, answer_seconds: float) -> None:
        self.name = name
        self.account = Account(epoch)
        self.received = 0
        self.matched = 0
        # batches under this name in earlier epochs, of any run, that are not matched
        self._earlier = 0
        # of the daemon, as last reported
        self.state = ""
        self.mark = b""
        self.max_batch = 0
        # whether the daemon has answered the last hello that had to be answered
        self.synced = False
        # nothing more is sent
        self.settling = False
        # hellos that may have gone out, and answers to them
        self.greetings = self.welcomes = 0
        self._endpoint = endpoint
        self.answer_seconds = answer_seconds
        self._credit = 0
        # the unacknowledged batches before this one are on their way
        self._next = 1
        # the batch whose sending was interrupted: a refusal may be of the part of it that went out
        self._torn = 0
        # the size of a waiting batch that the daemon has been told
        self._told_need = 0
        # the stream of the daemon, and which start of it
        self._session: tuple[str, int] | None = None
        self._heard = self._progress = 0.0
        self._asked = _NEVER
        # damaged messages that the daemon has refused since the last progress
        self._damaged = 0
        # the bytes on their way, and of which account, received batches and next batch
        self._way: tuple[Account, int, int, int] = (self.account, 0, 0, 0)

    @property
    def epoch(self) -> int:
        """The epoch in which batches are numbered now."""
        return self.account.epoch

    @property
    def all_sent(self) -> bool:
        """Whether no batch waits to go out."""
        return self._next > self.account.total

    @property
    def all_matched(self) -> bool:
        """Whether all that is durable is matched, as far as the daemon tells."""
        account = self.account
        return self.matched >= account.durable and not (self._earlier and account.unmatched)

    @property
    def takes_no_more(self) -> bool:
        """Whether the daemon, when last heard, took no more batches."""
        return self.state in FINAL_STATES

    # ---- batches in ------------------------------------------------------------------------------

    def add(self, batch: Batch) -> None:
        """Send this batch, too."""
        self.account.kept.append(batch)

    def take_back(self, batch: Batch) -> None:
        """Do not send the last batch, which has not gone out."""
        if self.account.kept and self.account.kept[-1] is batch:
            self.account.kept.pop()

    # ---- waiting ---------------------------------------------------------------------------------

    def owes_answer(self, now: float) -> None:
        """From now on silence counts, and the lack of progress."""
        self._heard = self._progress = now

    def greet_anew(self) -> None:
        """Send nothing else before the next ``hello`` is answered."""
        self.synced = False
        self._asked = _NEVER

    def check(self, now: float, timeout: float | None, what: str) -> None:
        """Raise the error that ends a wait for ``what``: silence, no progress, the daemon's end."""
        if self.synced and self.takes_no_more and not self.all_sent:
            raise self._refusal()
        if now - self._heard > self.answer_seconds:
            if self.takes_no_more:
                raise self._refusal()
            raise client_errors.DaemonSilentError(self._endpoint, self.answer_seconds)
        if timeout is not None and now - self._progress > timeout:
            raise client_errors.StalledError(self._endpoint, f"waited {timeout:g} s for {what}")

    def must_ask(self, now: float) -> bool:
        """Whether a ``hello`` is due: the daemon is silent, or does not know what is needed.

        It may have been restarted, and knows no connection that has sent nothing.
        """
        silent = now - max(self._heard, self._asked)
        asks = self._need() not in (0, self._told_need)
        anew = self._asked == _NEVER and not self.synced
        return asks or anew or silent > ASK_SECONDS

    # ---- messages out ----------------------------------------------------------------------------

    def hello(self) -> Outgoing:
        """Asks for the daemon's state, which the answer has, whichever messages were lost."""
        # counted first: one too many, after an interrupt, costs a second; one too few an answer
        self.greetings += 1
        need = self._need()
        header = self._header("hello") | {"versions": [PROTOCOL]}
        return Outgoing(header | ({"need": need} if need else {}))

    def batch(self) -> Outgoing | None:
        """The next batch that credit allows, counted as sent."""
        if not self.synced or self.settling or self.all_sent:
            return None
        outgoing = self._kept(self._next)
        if outgoing.size + self._on_their_way() > self._credit:
            return None
        header = self._header("batch") | {"seq": self._next, "form": "columns"}
        if outgoing.mark:
            header["mark"] = outgoing.mark
        if outgoing.growing:
            header["growing"] = True
        outgoing.sent += 1
        return Outgoing(header, outgoing.frames, outgoing.checksum, outgoing.size, self._next)

    def went_out(self, message: Outgoing, now: float) -> None:
        """The message is on its way."""
        if not message.sequence:
            self._asked = now
            self._told_need = message.header.get("need", 0)
        elif message.sequence == self._next:
            size = self._on_their_way() + self._kept(self._next).size
            self._next += 1
            # the sum over all batches takes too long for each of them
            self._way = self.account, self.received, self._next, size
            self._told_need = 0
            self._progress = now

    def stayed(self, message: Outgoing) -> None:
        """The message could not be sent."""
        if message.sequence:
            self._kept(message.sequence).sent -= 1
        else:
            self.greetings -= 1

    def interrupted(self, message: Outgoing) -> Outgoing:
        """A part of the message may be out: send this now, which ends it.

        The daemon refuses what it has got of the message; if none of it is out, this is a hello.
        In both cases the daemon is asked what it has.
        """
        self.greet_anew()
        self._torn = message.sequence
        return self.hello()

    def _header(self, kind: str) -> Header:
        return {"v": PROTOCOL, "type": kind, "producer": self.name, "epoch": self.epoch}

    def _kept(self, sequence: int) -> Batch:
        return self.account.kept[sequence - 1 - self.account.durable]

    def _on_their_way(self) -> int:
        account, received, coming = self.account, self.received, self._next
        if self._way[0] is not account or self._way[1:3] != (received, coming):
            first, behind = max(received - account.durable, 0), coming - 1 - account.durable
            size = sum(batch.size for batch in account.kept[first : max(first, behind)])
            self._way = account, received, coming, size
        return self._way[3]

    def _need(self) -> int:
        """The size of the next batch if only credit keeps it back, 0 otherwise."""
        if not self.synced or self.settling or self.all_sent or self._on_their_way():
            return 0
        size = self._kept(self._next).size
        return size if size > self._credit and not self.takes_no_more else 0

    # ---- messages in -----------------------------------------------------------------------------

    def hear(self, header: Header, now: float) -> None:
        """An answer has come.

        WireError if it is none. RefusedError: a batch, which is dropped, or this producer.
        LostBatchesError: the daemon was restarted without some; the rest goes out in a new epoch.
        """
        self._heard = now
        kind = header.get("type")
        if kind == "reply":
            raise client_errors.DaemonError(
                self._endpoint, "is the control socket of a daemon: reads go to its ingest socket"
            )
        if header.get("epoch", self.epoch) != self.epoch:
            return  # about batches that have been renumbered since
        if kind == "welcome":
            self._welcome(header)
        elif self._session not in (None, _session(header)):
            # restarted: what it has of ours, its welcome tells
            if self.synced:
                self.greet_anew()
        elif kind == "ack" and self._session is not None:
            self._advance(header)
        elif kind == "refused":
            self._refused(header)

    def _welcome(self, header: Header) -> None:
        self.welcomes += 1
        session = _session(header)
        received = integer(header, "received")
        self.max_batch = integer(header, "max_batch_bytes", 1)
        mark = header.get("mark", b"")
        self.mark = mark if isinstance(mark, bytes) else b""
        # in the same session: the daemon has forgotten the name, of which it had all
        known = self._session == session and received >= self.account.durable
        if self._session is not None and not known and self._restarted(session, header):
            return
        self._session = session
        self.synced = True
        self._advance(header)
        self._next = self.received + 1

    def _restarted(self, session: tuple[str, int], header: Header) -> bool:
        """Another start of the daemon has answered; whether this goes on in a new epoch."""
        account, received = self.account, integer(header, "received")
        before, kept = self._session, self.matched
        same = before is not None and session[0] == before[0]
        if same and received >= account.durable:
            # what it had accepted beyond that goes out again
            self.received = received
            return False
        if same:
            # what its journal has is matched
            kept = max(kept, received)
            account = account.advanced(0, kept)
        # without a journal, what was matched is published and not lost; nor is it in the same
        # start, which has forgotten the name
        stored = session != before and (same or header.get("durability", "none") != "none")
        lost = max(0, account.durable - (received if stored else kept))
        self.state = ""
        self._begin(account.restarted(lost, self.epoch + 1))
        self._session = session
        if lost:
            raise client_errors.LostBatchesError(self._endpoint, lost, stored=stored)
        return True

    def _advance(self, header: Header) -> None:
        received, durable = integer(header, "received"), integer(header, "durable")
        matched = integer(header, "matched")
        if durable > received:
            raise malformed(f"batches up to {durable} are durable, up to {received} received")
        # a daemon before this key does not tell
        earlier = integer(header, "earlier") if "earlier" in header else None
        if received > self.account.total:
            raise client_errors.DaemonError(
                self._endpoint, f"another producer uses the name '{self.name}' in the same epoch"
            )
        known = self.received, self.account.durable, self.matched
        if (received, durable, matched) > known or (earlier or 0) < self._earlier:
            self._progress = self._heard
            self._damaged = 0
        self.received = max(self.received, received)
        self.matched = max(self.matched, matched)
        self._earlier = earlier or 0
        self.account = self.account.advanced(durable, self.matched, earlier)
        self._next = max(self._next, self.account.durable + 1)
        self._credit = integer(header, "credit")
        self.state = client_errors.told(header.get("state", ""))

    def _refused(self, header: Header) -> None:
        sequence, reason = header.get("seq"), header.get("reason")
        conflict = reason == Reason.CONFLICT
        if "received" in header and not conflict:
            # batches before it may have been accepted, not yet acknowledged
            self._advance(header)
        if reason == Reason.CHECKSUM:
            self._damage(header)
            return
        if not isinstance(sequence, int) or reason == Reason.STALE_EPOCH:
            raise client_errors.RefusedError(self._endpoint, header)
        if not self.account.durable < sequence < self._next:
            return  # about a batch that will be sent again anyway
        if reason in (Reason.CREDIT, Reason.FULL):
            self._next = sequence
            self._credit = 0
        elif reason in (Reason.GAP, Reason.EPOCH):
            if self.synced:
                self.greet_anew()
        else:
            self._begin(self.account.without(sequence, self.epoch + 1))
            raise client_errors.RefusedError(self._endpoint, header)

    def _damage(self, header: Header) -> None:
        """A message has come in parts or changed on its way: it is sent again, to some extent."""
        self._damaged += not self._torn
        self._torn = 0
        if self._damaged > _DAMAGED_AT_MOST:
            raise client_errors.RefusedError(self._endpoint, header)
        if self.synced:
            self.greet_anew()

    def _begin(self, account: Account) -> None:
        """Go on in a new epoch, so that no number ever means two batches."""
        self.greet_anew()
        self.received = self.matched = 0
        self._next = 1
        self._credit = 0
        self._torn = 0
        # last: an interrupt before it leaves the epoch as it is, with an answer to wait for
        self.account = account

    def _refusal(self) -> client_errors.RefusedError:
        message = f"the daemon accepts no more batches (state: {self.state})"
        return client_errors.RefusedError(
            self._endpoint, {"reason": Reason.DRAINING.value, "message": message}
        )


def _session(header: Header) -> tuple[str, int]:
    return text(header, "stream"), integer(header, "session")
