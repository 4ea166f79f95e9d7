"""Clients in plain pyzmq and msgpack, written from docs/protocol.md alone."""

from __future__ import annotations

import random
import struct
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

import msgpack
import zmq
from crc32c import crc32c

Header = dict[str, Any]

Key = tuple[str, int]
Message = tuple[Header, list[bytes]]

LOST = 0.01
"""The share of messages that ``PlainHealer`` drops or delays, half of them each."""

_LATE = 3
# silence after which a producer asks again
_SILENT_SECONDS = 1.0
# a daemon sends something once a second on every connection with a pull
_SILENT_SYNC_SECONDS = 3.0


def connected(
    context: zmq.Context[Any], endpoint: str, kind: int = zmq.DEALER
) -> zmq.Socket[bytes]:
    """A socket that soon connects again, and is closed at once."""
    socket = context.socket(kind)
    socket.setsockopt(zmq.LINGER, 0)
    socket.setsockopt(zmq.RECONNECT_IVL, 5)
    socket.setsockopt(zmq.RCVHWM, 0)
    socket.connect(endpoint)
    return socket


def seal(frames: Sequence[bytes]) -> list[bytes]:
    """The frames, and the checksum of all of them."""
    return [*frames, struct.pack("<I", crc32c(b"".join(frames)))]


def unseal(frames: Sequence[bytes]) -> list[bytes]:
    """The frames without their checksum, which must be right."""
    *rest, last = frames
    assert struct.unpack("<I", last) == (crc32c(b"".join(rest)),), "damaged"
    return rest


class PlainProducer:
    """Sends batches and resends them until they are durable.

    ``acked``: batches of this epoch that the daemon has reported durable.
    """

    def __init__(self, context: zmq.Context[Any], endpoint: str, name: str, epoch: int) -> None:
        self._context = context
        self._endpoint = endpoint
        self.name = name
        self.epoch = epoch
        self.batches: list[tuple[bytes, list[bytes]]] = []
        """Mark and frames of every batch of the epoch so far."""
        self.acked = 0
        self.mark: bytes | None = None
        self.spoken = False
        """Whether the daemon has answered on this connection."""
        self._session = 0
        self._sent = 0
        self._credit = 0
        self._heard = 0.0
        self._socket: zmq.Socket[bytes] | None = None

    @property
    def socket(self) -> zmq.Socket[bytes]:
        assert self._socket is not None
        return self._socket

    def connect(self) -> None:
        """Reconnect, as after a restart of the daemon, and ask for its state."""
        self.close()
        self._socket = connected(self._context, self._endpoint)
        self._sent = self._credit = 0
        self.spoken = False
        self.hello()

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()

    def hello(self) -> None:
        self._heard = time.monotonic()
        header = {"v": 2, "type": "hello", "versions": [2]}
        self._send(header | {"producer": self.name, "epoch": self.epoch})

    def add(self, frames: list[bytes], mark: bytes) -> None:
        """One more batch to send, in columns."""
        self.batches.append((mark, frames))

    @property
    def finished(self) -> bool:
        return self.acked == len(self.batches)

    def step(self) -> None:
        """Process what has come, and send as much as there is credit for."""
        if time.monotonic() - self._heard > _SILENT_SECONDS:
            self.hello()
        while self.socket.poll(0):
            self._heard = time.monotonic()
            (frame,) = unseal(self.socket.recv_multipart())
            self._hear(msgpack.unpackb(frame))
        in_flight = 0
        while self._sent < len(self.batches):
            mark, frames = self.batches[self._sent]
            size = sum(map(len, frames))
            if in_flight + size > self._credit:
                break
            in_flight += size
            self._sent += 1
            header = {"v": 2, "type": "batch", "producer": self.name, "epoch": self.epoch}
            header |= {"seq": self._sent, "form": "columns", "mark": mark}
            self._send(header, *frames)
        self._credit -= in_flight

    def _send(self, header: Header, *frames: bytes) -> None:
        self.socket.send_multipart(seal([msgpack.packb(header), *frames]))

    def _hear(self, header: Header) -> None:
        assert header["type"] in ("welcome", "ack"), f"refused: {header}"
        if header["epoch"] != self.epoch:
            return
        if not self.spoken:
            assert header["session"] > self._session, "an epoch was used twice"
            self._session = header["session"]
        self.spoken = True
        assert header["session"] == self._session
        received, durable = header["received"], header["durable"]
        assert durable >= self.acked, f"lost: {durable} after {self.acked} were durable"
        assert received <= len(self.batches)
        self.acked = durable
        if header["type"] == "welcome":
            self._sent = received
            self.mark = header.get("mark")
            expected = self.batches[durable - 1][0] if durable else None
            # an earlier epoch of the name may have left a mark
            assert durable == 0 or self.mark == expected, "another batch's mark"
        self._sent = max(self._sent, received)
        # bytes in flight beyond ``received`` count against the credit
        on_the_way = sum(
            len(f) for _, frames in self.batches[received : self._sent] for f in frames
        )
        self._credit = header["credit"] - on_the_way


class PlainControl:
    """Sends requests, and receives replies whenever they come; ``replies``: by request number."""

    def __init__(self, context: zmq.Context[Any], endpoint: str) -> None:
        self.socket = connected(context, endpoint)
        self.replies: dict[int, Header] = {}
        self._number = 0

    def close(self) -> None:
        self.socket.close()

    def ask(self, command: str, **fields: Any) -> int:
        """Send a request; returns its number."""
        self._number += 1
        header = {"v": 2, "command": command, "id": self._number} | fields
        self.socket.send_multipart(seal([msgpack.packb(header)]))
        return self._number

    def step(self) -> None:
        while self.socket.poll(0):
            (frame,) = unseal(self.socket.recv_multipart())
            reply = msgpack.unpackb(frame)
            self.replies[reply["id"]] = reply


class PlainPuller:
    """Pulls the messages on some topics after a record, and gives credit for what it has read.

    messages: by (topic, at), their contents without time and epoch, and their frames. order: the
    keys in the order of arrival. at: everything up to this record has come.
    """

    def __init__(
        self,
        context: zmq.Context[Any],
        endpoint: str,
        topics: Sequence[str],
        *,
        stream: str = "",
        after: int = 0,
        until: int | None = None,
        window: int = 1 << 20,
    ) -> None:
        self.socket = connected(context, endpoint)
        self._topics = list(topics)
        self._window = window
        self._number = 0
        self.stream = stream
        self.at = after
        self.until = until
        self.messages: dict[tuple[str, int], tuple[Header, list[bytes]]] = {}
        self.order: list[tuple[str, int]] = []
        self.bytes = 0
        self._last: dict[str, int] = {}
        self.heads: dict[str, int] = {}
        self.head = 0
        self.answers: list[Header] = []
        """Answers other than messages."""
        self._heard = time.monotonic()
        self.pull()

    @property
    def heard(self) -> float:
        """When the daemon last sent something, in seconds of the monotonic clock."""
        return self._heard

    @property
    def silent(self) -> bool:
        """Whether the pull is lost, perhaps with the process that served it: begin another one."""
        return time.monotonic() > self._heard + _SILENT_SYNC_SECONDS

    def close(self) -> None:
        self.socket.close()

    def pull(self) -> None:
        """Ask for what follows; late answers to an earlier pull are ignored."""
        self._number += 1
        request = {"type": "pull", "stream": self.stream, "after": self.at, "topics": self._topics}
        request["credit"] = self._window
        if self.until is not None:
            request["until"] = self.until
        self.ask(**request)

    def ask(self, **request: Any) -> None:
        header = {"v": 2, "id": self._number} | request
        self.socket.send_multipart(seal([msgpack.packb(header)]))

    def step(self, milliseconds: int = 0) -> bool:
        """Process one message; returns whether there was one."""
        if not self.socket.poll(milliseconds):
            return False
        self._heard = time.monotonic()
        first, *frames = unseal(self.socket.recv_multipart())
        answer = msgpack.unpackb(first)
        assert answer["v"] == 2
        if answer.get("id", self._number) != self._number:
            return True
        if answer["type"] == "message":
            self._take(answer, frames)
            return True
        self.answers.append(answer)
        if answer["type"] == "reached":
            self.at = answer["at"]
            self.stream = answer["stream"]
            self.heads = answer["heads"]
            self.head = answer["head"]
        return True

    def _take(self, answer: Header, frames: list[bytes]) -> None:
        topic, first, *rest = frames
        header = msgpack.unpackb(first)
        assert answer["topic"] == topic.decode() == header["topic"]
        key = topic.decode().removesuffix("."), header["at"]
        content = {k: v for k, v in header.items() if k not in ("epoch", "time")}
        assert key not in self.messages, f"{key} came twice"
        if self.order:
            assert self.order[-1][1] <= key[1], "out of order"
        last = self._last.get(key[0], header["prev"])
        assert header["prev"] <= last < key[1], "a hole"
        self._last[key[0]] = key[1]
        self.messages[key] = content, rest
        self.order.append(key)
        size = sum(map(len, frames))
        self.bytes += size
        self.ask(type="credit", bytes=size)


def fetch_state(
    context: zmq.Context[Any], endpoint: str, milliseconds: int
) -> tuple[Header, bytes]:
    """The last stored state: the fields of its parts, and its k-mers."""
    socket = connected(context, endpoint)
    try:
        request = {"v": 2, "type": "snapshot", "id": 1, "credit": 1 << 20}
        kmers = b""
        while True:
            socket.send_multipart(seal([msgpack.packb(request)]))
            assert socket.poll(milliseconds), "no snapshot"
            first, part = unseal(socket.recv_multipart())
            answer = msgpack.unpackb(first)
            assert answer["type"] == "snapshot", answer
            kmers += part
            if answer["part"] == answer["parts"]:
                return answer, kmers
            request = {"v": 2, "type": "credit", "id": 1, "bytes": len(part)}
    finally:
        socket.close()


class PlainHealer:
    """Follows the feed on some topics from the first record on, over restarts of the daemon.

    It loses messages of the feed on purpose, and pulls what is missing when ``heal`` is called.
    order: keys in the order in which messages were applied. messages: their contents without time
    and epoch, including those that wait for missing ones.
    """

    def __init__(
        self,
        context: zmq.Context[Any],
        feed: str,
        sync: str,
        topics: Sequence[str],
        rng: random.Random,
    ) -> None:
        self._context, self._sync, self._topics, self._rng = context, sync, topics, rng
        self.socket = connected(context, feed, zmq.SUB)
        for topic in (*topics, "status", "beat"):
            self.socket.subscribe(f"{topic}.")
        self.messages: dict[Key, Message] = {}
        self.order: list[Key] = []
        self.last = dict.fromkeys(topics, 0)
        self.missing = 0
        """Something is missing up to this record; 0: nothing is."""
        self.lost = self.pulled = 0
        self.ended = False
        self._stream = ""
        self._epoch = self._top = 0
        self._late: list[tuple[int, list[bytes]]] = []
        self._kept: list[Key] = []
        self._puller: PlainPuller | None = None
        self._taken = self._passed = 0

    def close(self) -> None:
        self.leave_sync()
        self.socket.close()

    def step(self, *, faults: bool = True) -> None:
        """Process what has come."""
        while self.socket.poll(0):
            frames = self.socket.recv_multipart()
            chance = self._rng.random() if faults else 1.0
            if chance < LOST / 2:
                self.lost += 1
            elif chance < LOST:
                self.lost += 1
                self._late.append((self._rng.randint(1, _LATE), frames))
            else:
                self._hear(frames)
                self._let_go(0 if faults else _LATE)

    def _let_go(self, more: int) -> None:
        waiting, self._late = self._late, []
        for count, frames in waiting:
            if count - 1 - more > 0:
                self._late.append((count - 1, frames))
            else:
                self._hear(frames)

    def _hear(self, frames: list[bytes]) -> None:
        wire, first, *rest = unseal(frames)
        header = msgpack.unpackb(first)
        topic = wire.decode().removesuffix(".")
        signal = topic in ("beat", "status")
        if header["epoch"] < self._epoch:
            return
        assert self._stream in ("", header["stream"]), "another stream: everything is lost"
        if header["epoch"] > self._epoch:
            assert header["at"] >= self._top + (not signal), "lost: numbers come again"
        self._stream, self._epoch = header["stream"], header["epoch"]
        self._top = max(self._top, header["at"])
        if signal:
            self._see(header)
            self.ended = topic == "status" and header["status"]["state"] == "ended"
            return
        key = topic, header["at"]
        self._know(key, (_content(header), rest))
        if not self.missing and header["prev"] > self.last[topic]:
            self.missing = header["prev"]
        if self.missing:
            self._kept.append(key)
        else:
            self._apply(key)

    def _see(self, signal: Header) -> None:
        heads = {topic: signal["heads"].get(f"{topic}.", 0) for topic in self._topics}
        behind = [at for topic, at in heads.items() if at > self.last[topic]]
        if behind:
            self.missing = max(self.missing, *behind)
        elif not self.missing:
            self._reach(signal["at"])

    def _know(self, key: Key, message: Message) -> None:
        assert self.messages.setdefault(key, message) == message, f"{key} was said differently"

    def _apply(self, key: Key) -> None:
        """Apply a message, unless it was applied before."""
        topic, at = key
        if at <= self.last[topic]:
            return
        prev = self.messages[key][0]["prev"]
        assert prev <= self.last[topic], f"{key}: {prev} is missing and was not noticed"
        self.last[topic] = at
        self.order.append(key)

    def _reach(self, at: int) -> None:
        """Nothing more will come up to this record."""
        self.last = {topic: max(last, at) for topic, last in self.last.items()}

    # ---- what is missing ------------------------------------------------------------------------

    def leave_sync(self) -> None:
        """Forget a pull: the daemon that serves it has ended."""
        if self._puller is not None:
            self._puller.close()
            self._puller = None

    def heal(self) -> None:
        """Pull what is missing, in portions."""
        if not self.missing:
            return
        if self._puller is not None and self._puller.silent:
            self.leave_sync()
        if self._puller is None:
            after = max(self._passed, min(self.last.values()))
            self._puller = PlainPuller(
                self._context, self._sync, self._topics, stream=self._stream, after=after
            )
            self._taken = 0
        puller = self._puller
        while puller.step():
            for key in puller.order[self._taken :]:
                self._know(key, puller.messages[key])
                self._apply(key)
                # everything before it has come, on all topics
                self._passed = max(self._passed, key[1] - 1)
                self.pulled += 1
            self._taken = len(puller.order)
        bad = [answer for answer in puller.answers if answer["type"] in ("lost", "reset")]
        assert not bad, f"{self.last}: sync answered {bad}"
        if puller.order or puller.heads:
            self._reach(puller.at)
        if puller.at >= self.missing:
            self.leave_sync()
            self.missing = 0
            kept, self._kept = self._kept, []
            for key in kept:
                if self.messages[key][0]["prev"] > self.last[key[0]]:
                    self.missing = max(self.missing, self.messages[key][0]["prev"])
                if self.missing:
                    self._kept.append(key)
                else:
                    self._apply(key)


def _content(header: Header) -> Header:
    return {k: v for k, v in header.items() if k not in ("epoch", "time")}


Rows = list[tuple[Any, ...]]

_FORMATS = {"uint8": "B", "uint32": "I", "int32": "i", "int64": "q", "uint64": "Q"}
_ANSWERS = ("match", "mismatch", "near", "ltb", "read")
# the version of the searched snapshot is not part of an answer
_LEFT_OUT = ("read", "snapshot")


class PlainFold:
    """Applies messages; those on one topic come in the order of their records.

    versions: by batch, the dictionary version of its last revision, or else its own. totals: the
    sums of the messages. settled: version and first batch of each ``settled.``.
    """

    def __init__(self) -> None:
        self.versions: dict[int, tuple[int, int]] = {}
        self.totals = Counter[str]()
        self.settled: list[tuple[int, int]] = []
        self._said: dict[int, list[_Read]] = {}

    def take(self, topic: str, header: Header, frames: Sequence[bytes]) -> None:
        """Apply a message; topic: without its dot; frames: those after its header."""
        if topic == "settled":
            self.settled.append((header["version"], header["from_batch"]))
        elif topic in ("retract", "upgrade", *_ANSWERS):
            batch, at = header["batch"], header["at"]
            reads = self._said.get(batch)
            if reads is None:
                reads = self._said[batch] = [_Read() for _ in range(header["reads"])]
            if topic == "upgrade":
                self.totals.update(header["totals"])
            self.versions[batch] = max(self.versions.get(batch, (0, 0)), (at, header["version"]))
            columns = _columns(header["columns"], frames[1:])
            if topic == "retract":
                assert columns["read"], "nothing is retracted"
                for read in columns["read"]:
                    reads[read].retract(at)
            elif topic == "upgrade":
                for wire, fields in header["parts"].items():
                    size = len(wire)
                    own = {n[size:]: v for n, v in columns.items() if n.startswith(wire)}
                    _add(reads, at, wire.removesuffix("."), fields, own)
            else:
                _add(reads, at, topic, header, columns)
                if topic == "read":
                    self.totals.update(_counts(columns))

    def answers(self) -> dict[int, list[dict[str, Rows]]]:
        """By batch, for each of its reads, the rows by topic; targets by name."""
        return {batch: [read.rows() for read in reads] for batch, reads in self._said.items()}


class _Read:
    """The valid rows of a read, by topic with their records, from record ``since`` on."""

    def __init__(self) -> None:
        self._since = 0
        self._rows: list[tuple[str, int, tuple[Any, ...]]] = []

    def retract(self, at: int) -> None:
        self._since = max(self._since, at)
        self._rows = [row for row in self._rows if row[1] >= self._since]

    def add(self, topic: str, at: int, row: tuple[Any, ...]) -> None:
        if at >= self._since:
            self._rows.append((topic, at, row))

    def rows(self) -> dict[str, Rows]:
        found: dict[str, Rows] = {}
        for topic, _, row in self._rows:
            found.setdefault(topic, []).append(row)
        return found


def _columns(described: Sequence[Any], frames: Sequence[bytes]) -> dict[str, tuple[Any, ...]]:
    found = {}
    for (name, kind, rows), frame in zip(described, frames, strict=True):
        found[name] = struct.unpack(f"<{rows}{_FORMATS[kind]}", frame)
    return found


def _add(
    reads: list[_Read],
    at: int,
    topic: str,
    fields: Header,
    columns: dict[str, tuple[Any, ...]],
) -> None:
    names = dict(fields.get("targets", ()))
    sets = {n: (*map(names.get, some), *more) for n, some, *more in fields.get("sets", ())}
    kept = [name for name in columns if name not in _LEFT_OUT]
    for row, read in enumerate(columns["read"]):
        values = []
        for name in kept:
            value = columns[name][row]
            if name == "target":
                value = None if value == 0xFFFFFFFF else sets[value]
            elif name == "best_target":
                value = None if value == -1 else names[value]
            values.append(value)
        reads[read].add(topic, at, tuple(values))


def _counts(columns: dict[str, tuple[Any, ...]]) -> dict[str, int]:
    return {
        "matches": sum(columns["matches"]),
        "mismatches": sum(columns["mismatches"]),
        "reads_on_target": sum(target != -1 for target in columns["best_target"]),
    }
