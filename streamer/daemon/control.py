"""The control thread: replies to requests, even while the engine is busy."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import zmq

from streamer.daemon.core.feed import parted
from streamer.daemon.core.life import STARTING
from streamer.daemon.core.rights import Rights
from streamer.daemon.daemon_status import DaemonStatus
from streamer.daemon.jobs.job_requests import key_of
from streamer.daemon.jobs.jobs_worker import JOB_COMMANDS, JobReply
from streamer.daemon.metrics.device_memory import DeviceMemory
from streamer.daemon.read_decisions import Answer
from streamer.daemon.reload import Reply
from streamer.daemon.security.known_peers import KnownPeers
from streamer.daemon.socket_worker import SocketWorker
from streamer.daemon.worker import POLL_MILLISECONDS, Mailbox
from streamer.errors import StreamerError
from streamer.protocol import wire
from streamer.protocol.payloads import decode_batch, describe
from streamer.protocol.schema import TOPICS
from streamer.protocol.transport.curve import OVERHEAD_BYTES, receive_signed
from streamer.sequences.read_batch import ReadBatch

if TYPE_CHECKING:
    from streamer.daemon.security.gatekeeper import Gatekeeper
    from streamer.matching.target_tally import TargetTally

COMMANDS = (
    "status", "drain", "reload", "ask", "targets", "panel", "coverage", "novelty", *JOB_COMMANDS,
)  # fmt: skip
MAX_ASK_BYTES = 1 << 20
"""The most bytes of a frame, such as the letters of the reads in ``ask``."""

MAX_BINS = 10_000
"""The most bins of the coverage of a target."""

MAX_PENDING = 1 << 16
MAX_PENDING_BYTES = 1 << 24
"""The most requests whose replies wait for room, and their bytes."""

_AT_ONCE = 100
_BINS = 100
# more rows than fit into a reply
_MOST_ROWS = 1000
# whether there is room for a reply only shows when it is sent
_RETRY_MILLISECONDS = 5


class _Request(NamedTuple):
    """A request: the route of its reply, its size, the reply (except a status), further frames.

    key: the key of the client that asked and that may have the reply. status: None if the reply has
    none, else whether it lists the subscriptions.
    """

    envelope: list[bytes]
    key: str
    size: int
    reply: wire.Header
    status: bool | None = None
    frames: Sequence[wire.Buffer] = ()


class ControlWorker(SocketWorker):
    """Replies to requests; the empty first frame of a REQ socket is returned.

    reload: begins a reload of the dictionary, given the state of the daemon and the key of the
    request. ask: has reads decided on. jobs: executes one of JOB_COMMANDS. All three reply later.

    A client may send many requests before it reads replies. If libzmq has no room for the replies,
    the requests wait, which are small; a status is made only when its reply is sent.
    """

    def __init__(
        self,
        status: DaemonStatus,
        context: zmq.Context[zmq.Socket[bytes]],
        notify: Callable[[], None],
        *,
        drain: Callable[[str], None],
        reload: Callable[[str, str, Reply], None],
        ask: Callable[[ReadBatch, Answer], None],
        jobs: Callable[[str, wire.Header, Rights, JobReply], None] | None = None,
        gate: Gatekeeper | None = None,
    ) -> None:
        super().__init__("control", status, context, notify, gate)
        self._peers = KnownPeers(gate, "control")
        # connections that are ended after one reply, and their keys
        self._unknown: dict[bytes, str] = {}
        self.inbox: Mailbox[_Request] = Mailbox()
        self._drain = drain
        self._reload = reload
        self._ask = ask
        self._jobs = jobs
        self._pending: dict[bytes, deque[_Request]] = {}  # by route, in order
        self._count = self._bytes = 0
        # the status, made once a turn: without and with the subscriptions
        self._replies: dict[bool, wire.Header] = {}
        self._memory = DeviceMemory()

    def work(self) -> None:
        """Reply until asked to stop."""
        socket = self.bind(
            zmq.ROUTER,
            {
                zmq.MAXMSGSIZE: MAX_ASK_BYTES + (OVERHEAD_BYTES if self._peers.guarded else 0),
                zmq.SNDHWM: 1000,
                zmq.RCVHWM: 64,  # waiting messages may be large
                zmq.ROUTER_MANDATORY: 1,
                # a client that reconnects takes over its routing id; with keys it may be another
                zmq.ROUTER_HANDOVER: int(not self._peers.guarded),
            },
        )
        poller = self.poller(socket, self.inbox)
        try:
            last = False
            while not last:
                last = self.stopping.is_set()  # one more time: replies may have come until then
                self._peers.sweep(time.monotonic())
                wait = 0 if last else _RETRY_MILLISECONDS if self._pending else POLL_MILLISECONDS
                if socket in dict(poller.poll(wait)):
                    self._receive(socket)
                for request in self.inbox.take():
                    self._keep(request)
                self._replies.clear()
                for route in list(self._pending):
                    self._reply(socket, route)
        finally:
            self.release(socket)

    def _receive(self, socket: zmq.Socket[bytes]) -> None:
        for _ in range(_AT_ONCE):
            try:
                sender, frames = receive_signed(socket, signed=self._peers.guarded)
            except zmq.Again:
                break
            rights: Rights | wire.WireError | None
            try:
                rights = self._peers.rights(frames[0], sender)
            except wire.WireError as error:
                rights = error
                self._unknown[frames[0]] = sender.user
            if rights is None:
                continue
            request = self._obey(frames, rights, sender.user)
            if request is not None:
                self._keep(request)

    def _keep(self, request: _Request) -> None:
        """Reply once there is room."""
        waiting = self._pending.setdefault(request.envelope[0], deque())
        full = self._count >= MAX_PENDING or self._bytes + request.size > MAX_PENDING_BYTES
        # a client that reads its replies does not wait for clients that do not
        if waiting and full:
            self._status.unanswered += 1
            return
        waiting.append(request)
        self._count += 1
        self._bytes += request.size

    def _reply(self, socket: zmq.Socket[bytes], route: bytes) -> None:
        """Reply to a client's requests as long as there is room."""
        waiting = self._pending[route]
        reached = self._peers.reached(route)
        once = self._unknown.pop(route, None)
        key = once if reached is None else reached.key
        while waiting:
            request = waiting[0]
            if request.key != key:
                # the client has gone; perhaps another one has its route now
                self._drop(waiting)
                continue
            reply = request.reply
            if request.status is not None:
                reply = reply | {"status": self._fields(subscriptions=request.status)}
            try:
                frames = wire.answer(reply, request.frames)
                socket.send_multipart([*request.envelope, *frames], zmq.NOBLOCK)
            except zmq.Again:
                return
            except zmq.ZMQError as error:
                if error.errno != zmq.EHOSTUNREACH:
                    raise
                # the client has gone: drop all its requests
            self._drop(waiting)
        del self._pending[route]

    def _drop(self, waiting: deque[_Request]) -> None:
        self._bytes -= waiting.popleft().size
        self._count -= 1

    def _fields(self, *, subscriptions: bool) -> wire.Header:
        if subscriptions not in self._replies:
            fields = self._status.fields(subscriptions=subscriptions)
            gpus = self._memory.fields(self._status.cards)
            self._replies[subscriptions] = fields | {"gpus": gpus}
        return self._replies[subscriptions]

    def _obey(
        self, frames: list[bytes], rights: Rights | wire.WireError, key: str
    ) -> _Request | None:
        """Do what a message asks for; None if its reply comes later. A WireError becomes its reply.

        rights, key: those of its sender, or why it has none.
        """
        size = sum(map(len, frames))
        envelope, frames = frames[:1], frames[1:]
        if frames and not frames[0]:
            envelope.append(frames.pop(0))
        reply: wire.Header = {"v": wire.PROTOCOL}
        request = _Request(envelope, key, size, reply)
        try:
            header, *data = wire.unseal(frames)
            fields = wire.unpack(header)
            if "id" in fields:
                reply["id"] = fields["id"]
            command = fields.get("command")
            if isinstance(rights, wire.WireError):
                raise rights
            # an unknown command is refused as unknown, not as denied
            if command in COMMANDS and not rights.may_order(command):
                denied = rights.denial(f"ask for '{command}'")
                raise denied
            if data and command != "ask":
                raise wire.malformed(
                    f"a request is a header and its checksum, not {len(frames)} frames"
                )
            return self._do(request, fields, data, rights)
        except wire.WireError as error:
            return request._replace(reply=reply | _refusal(error))

    def _do(
        self, request: _Request, fields: wire.Header, data: Sequence[wire.Buffer], rights: Rights
    ) -> _Request | None:
        """Execute a command; returns the request with its reply, None if that comes later."""
        status, later = self._status, partial(self._later, request)
        reply: wire.Header = {}
        columns: Sequence[wire.Buffer] = ()
        match fields.get("command"):
            case "status":
                request = request._replace(status=wire.flag(fields, "subscriptions"))
            case "drain":
                self._drain("command on the control socket")
            case "reload":
                self._reload(status.state, key_of(fields), later)
                return None
            case "ask":
                batch, _ = decode_batch(fields, data)
                self._ask(batch, later)
                return None
            case "targets":
                reply = _rows(status, fields)
            case "panel":
                samples = [] if status.sheet is None else status.sheet.rows()
                judging = status.config.panel.fields() | {"groups": status.groups}
                run = status.config.samples.run or (status.sheet.run if status.sheet else "")
                reply = {"panel": judging, "samples": samples, "run": run}
            case "coverage":
                reply, columns = _coverage(status, fields)
            case "novelty":
                reply, columns = _curve(status)
            case command if command in JOB_COMMANDS:
                if self._jobs is None:
                    raise wire.WireError(
                        wire.Reason.DENIED,
                        "there are no jobs: set jobs.directories in the configuration",
                    )
                self._jobs(command, fields, rights, later)
                return None
            case command:
                known = ", ".join(COMMANDS)
                raise wire.malformed(f"unknown command {wire.shown(command)} (known: {known})")
        reply = request.reply | reply | {"type": "reply", "ok": True}
        return request._replace(reply=reply, frames=columns)

    def _later(
        self,
        request: _Request,
        outcome: wire.Header | wire.WireError,
        frames: Sequence[wire.Buffer] = (),
    ) -> None:
        """Reply to a request that was answered later; from any thread."""
        if isinstance(outcome, wire.WireError):
            outcome = _refusal(outcome)
        reply = request.reply | {"type": "reply", "ok": True} | outcome
        size = request.size + sum(map(len, frames))
        self.inbox.put(request._replace(size=size, reply=reply, frames=frames))


def _rows(status: DaemonStatus, request: wire.Header) -> wire.Header:
    """Rows of target counts from a number on, up to a limit, and the number of the next row."""
    tally = _tally(status)
    by = request.get("by")
    if by not in (None, "barcode", "group"):
        raise wire.malformed(f"field 'by' is {wire.shown(by)}, must be 'barcode', 'group' or nil")
    first = wire.integer(request, "first") if "first" in request else 0
    more = wire.flag(request, "more")
    rows, numbers, of = tally.some_rows(
        first, _MOST_ROWS, by, found=wire.flag(request, "found"), more=more
    )
    if not of:
        raise wire.WireError(
            wire.Reason.SOURCES, "no target has a group: add the column group to dictionary.targets"
        )
    part = next(parted(rows), [])
    columns = TOPICS["barcodes" if by == "barcode" else "targets"].shown.split()
    columns = ["group", *columns[1:]] if by == "group" else columns
    columns += tally.more_columns(by) if more else []
    following = numbers[len(part)] if len(part) < len(numbers) else None
    fields = {"columns": columns, "rows": part, "next": following, "of": of}
    return fields | status.answers()


def _coverage(
    status: DaemonStatus, request: wire.Header
) -> tuple[wire.Header, Sequence[wire.Buffer]]:
    """The coverage of a target: header fields that describe the columns, and the columns."""
    tally = _tally(status)
    if not status.config.answers.coverage:
        raise wire.WireError(
            wire.Reason.SOURCES,
            "coverage is not counted: set answers.coverage = true in the configuration",
        )
    barcode = request.get("barcode")
    if barcode is not None and status.config.answers.coverage != "barcode":
        raise wire.WireError(
            wire.Reason.SOURCES,
            "coverage is not counted by barcode: set answers.coverage = 'barcode'",
        )
    target = request.get("target")
    if not isinstance(target, str):
        raise wire.malformed("field 'target' must be a string")
    bins = wire.integer(request, "bins", 1, MAX_BINS) if "bins" in request else _BINS
    try:
        columns = tally.coverage(target, bins, None if barcode is None else str(barcode))
    except StreamerError:
        # an unknown name may be anything
        raise wire.malformed(f"no target of the dictionary is {wire.shown(target)}") from None
    if columns is None:
        raise wire.WireError(
            wire.Reason.SOURCES,
            "a saved dictionary does not hold the places of its k-mers: use its sources",
        )
    fields = {"columns": describe(columns)} | status.answers()
    return fields, [wire.raw(values) for values in columns.values()]


def _tally(status: DaemonStatus) -> TargetTally:
    if not status.config.answers.targets:
        raise wire.WireError(
            wire.Reason.SOURCES,
            "nothing is counted: set answers.targets = true in the configuration",
        )
    if status.state == STARTING or status.tally is None:
        raise wire.WireError(
            wire.Reason.BUSY, "still starting: ask again once the state is running"
        )
    return status.tally


def _curve(status: DaemonStatus) -> tuple[wire.Header, Sequence[wire.Buffer]]:
    """The novelty curve: header fields that describe the columns, and the columns."""
    if status.novelty is None:
        raise wire.WireError(
            wire.Reason.SOURCES,
            "the dictionary learns nothing from the reads: set dictionary.mode = 'grow'",
        )
    columns = status.novelty.columns()
    fields = {"version": status.version, "columns": describe(columns)}
    return fields, [wire.raw(values) for values in columns.values()]


def _refusal(error: wire.WireError) -> wire.Header:
    return {"type": "reply", "ok": False} | error.fields()
