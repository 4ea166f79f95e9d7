"""Ingest without sockets: fuzzed messages beside honest producers, over restarts of the daemon.

The daemon's decoding and its core are the real ones, and so is the core of the honest producers;
a list stands for the engine and the journal. The sender of fuzzed messages has a key for its own
producers only, so none of its messages may change anything for the others.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, cast

import numpy as np
from crc32c import crc32c

from streamer.client.client_errors import RefusedError
from streamer.client.core.producer import Batch, Outgoing, ProducerCore
from streamer.daemon.batch_record import Accepted
from streamer.daemon.config import load
from streamer.daemon.core.life import RUNNING
from streamer.daemon.core.producers import KnownProducer
from streamer.daemon.core.rights import EVERYTHING, Rights
from streamer.daemon.daemon_status import DaemonStatus
from streamer.daemon.ingest import IngestWorker, _Message
from streamer.protocol.payloads import encode_reads
from streamer.protocol.wire import answer, pack, size_of, unpack, unseal
from streamer.sequences.read_batch import BadReadError, ReadBatch
from tests.fuzz import page
from tests.fuzz.mutation import sealed

ODD = ("odd", "ödd", "odd-2")
"""The producers of fuzzed messages."""

RIGHTS = Rights("odd", "odd", ("odd*", "ödd*"), ("*",), True, ("*",))
NOW = 1_700_000_000_000
DAY = 24 * 3600 * 1000
CONFIG = load(None, ["ingest.memory_bytes=1048576", "ingest.max_batch_bytes=4096",
                     "decision.enrich=['a']", "dictionary.sources=['a']"],
              check_files=False)  # fmt: skip
MOST = CONFIG.ingest.max_batch_bytes
_ROUTE, _HONEST = b"odd", b"honest-%d"
_BATCHES = 4


def together(raw: Sequence[Any], sums: Any) -> list[ReadBatch | None]:
    """Batches as made by a matcher on a GPU: in one step, with the checksums of their letters."""
    sums[:] = [crc32c(bytes(letters), int(value)) for (*_, letters), value in
               zip(raw, sums, strict=True)]  # fmt: skip
    made: list[ReadBatch | None] = []
    for one in raw:
        try:
            made.append(ReadBatch.from_letters(*one))
        except BadReadError:
            made.append(None)
    return made


class Known:
    """A producer according to docs/protocol.md: its epoch, and the frames of all its batches."""

    def __init__(self) -> None:
        self.epoch = -1
        self._all: dict[int, list[Sequence[bytes]]] = {}

    @property
    def batches(self) -> list[Sequence[bytes]]:
        """The batches of its current epoch."""
        return self._all.setdefault(self.epoch, [])


class Honest:
    """A producer with some batches to send. sent: their frames, in order."""

    def __init__(self, number: int, rng: random.Random) -> None:
        self.route = _HONEST % number
        self.core = ProducerCore("ingest", f"honest-{number}", NOW, 5.0)
        self.sent: list[list[bytes]] = []
        for at in range(_BATCHES):
            letters = rng.choices(("", "ACGT", "NNAC", "u"), k=rng.randrange(4))
            reads = [(f"{number}.{at}.{read}", text) for read, text in enumerate(letters)]
            frames = [bytes(frame) for frame in encode_reads(reads)]
            self.sent.append(frames)

    def hear(self, frames: Sequence[Any], now: float) -> None:
        """Take an answer."""
        try:
            self.core.hear(unpack(unseal(frames)[0]), now)
        except RefusedError as error:
            # it gives up after a few damaged messages; its user begins again
            if error.reason != "checksum":
                raise
            self.core.greet_anew()

    def hand_over(self, now: float) -> None:
        """Hand over all batches."""
        self.core.owes_answer(now)
        for frames in self.sent:
            self.core.add(Batch(list(frames), size_of(frames), crc32c(b"".join(frames)), 1, None))


class IngestSide:
    """A daemon's ingest; ``stored`` is the journal."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.now = 100.0
        self.stored: list[tuple[str, int, int, bytes, bytes]] = []
        # accepted, but not stored yet
        self.waiting: list[Accepted] = []
        self.known: dict[str, Known] = {}
        self.durable: dict[str, tuple[int, int, bytes]] = {}
        self.contents: dict[tuple[str, int, int], int] = {}
        self.ahead = rng.random() < 0.3
        self.session = 0
        self.honest = [Honest(number, rng) for number in range(2)]
        # the content of the message being handled, if it may be accepted
        self.expected: page.Batch | None = None
        self.taken: Accepted | None = None
        self.status = DaemonStatus(CONFIG)
        self.status.state = RUNNING
        self.worker = self._start()
        for one in self.honest:
            one.hand_over(self.now)

    def _start(self) -> IngestWorker:
        self.session += 1
        self.status.epoch = self.session
        known = [KnownProducer(name, *rest) for name, rest in self.durable.items()]
        worker = IngestWorker(
            self.status,
            cast(Any, None),
            lambda: None,
            self._forward,
            lambda: (ReadBatch.from_letters, together if self.ahead else None),
            known=known,
            number=len(self.stored),
            content_of=lambda *key: self.contents.get(key),
            begin=self._begin,
            forget=lambda names: None,
        )
        # there is no configured journal, so this alone declares it as synced
        worker.core._settings = worker.core._settings._replace(durability="fsync")
        self._tick(worker)
        return worker

    def _tick(self, worker: IngestWorker) -> None:
        worker.core.tick(self.now, NOW)
        worker.core.life(RUNNING)

    def close(self) -> None:
        """Close what the worker has open."""
        self.worker.inbox.close()

    def _forward(self, item: Accepted) -> None:
        assert self.taken is None, "one message was accepted twice"
        self.taken = item
        self.waiting.append(item)

    def _begin(self, epochs: Sequence[tuple[str, int]]) -> None:
        for name, epoch in epochs:
            if self.durable.get(name, (-1,))[0] < epoch:
                mark = self.durable[name][2] if name in self.durable else b""
                self.durable[name] = epoch, 0, mark
        self.worker.core.begun(epochs)

    # ---- messages --------------------------------------------------------------------------------

    def aim(self, fields: dict[Any, Any], rng: random.Random) -> dict[str, Any]:
        """Fields that make a message the next one of a fuzzed producer, or a repeated one."""
        known = self.known.get(fields.get("producer", ""))
        chance = rng.random()
        if known is None or chance < 0.1:
            return {}
        if fields.get("type") == "hello":
            return {"epoch": known.epoch + (chance > 0.98)}
        next_one = len(known.batches) + 1
        seq = next_one if chance < 0.8 or next_one == 1 else rng.randrange(1, next_one)
        return {"epoch": known.epoch, "seq": seq}

    def take(self, frames: Sequence[bytes]) -> str:
        """Take a fuzzed message; returns its outcome according to docs/protocol.md."""
        return self._handle(_ROUTE, frames, RIGHTS)

    def _handle(self, route: bytes, frames: Sequence[bytes], rights: Rights) -> str:
        core = self.worker.core
        wanted, reasons = self._judge(frames, rights)
        # at most nine frames of a message are read; the first is the route
        message = _Message(route, [memoryview(frame) for frame in frames[:8]], rights)
        self.taken = None
        before, answered = len(self.waiting), len(core._answers)
        self.worker._decode_ahead([message])
        self.worker._take(message)
        told = None
        for to, header in core._answers[answered:]:
            if header["type"] == "refused":
                assert to == route
                assert told is None, "one message was refused twice"
                told = header
        if told is None:
            assert wanted, f"taken for valid, but: {sorted(reasons)}"
            assert (wanted == "batch") == (self.taken is not None), wanted
            self._apply(wanted, frames)
        else:
            reason = told["reason"]
            assert reason in page.REASONS, reason
            assert self.taken is None and len(self.waiting) == before
            if wanted:
                assert wanted == "batch" and reason == "credit", (wanted, told)
            else:
                assert reason in reasons, (reason, sorted(reasons))
            if reason == "denied" and "epoch" in told:
                own = rights.may_send(told["producer"])
                assert own or "received" not in told, "a state that is another's"
            wanted = reason
        return wanted

    def _judge(self, frames: Sequence[bytes], rights: Rights) -> tuple[str, frozenset[str]]:
        """The effect of a message by docs/protocol.md, "" if none, and reasons to refuse it."""
        self.expected = None
        try:
            if len(frames) > 8:
                raise page.Faulty("malformed", "checksum", "version")
            return self._allowed(frames, rights), frozenset()
        except page.Faulty as faulty:
            return "", faulty.reasons

    def _allowed(self, frames: Sequence[bytes], rights: Rights) -> str:
        fields, data = page.opened(frames)
        kind = fields.get("type")
        if kind not in ("hello", "batch"):
            raise page.Faulty("malformed")
        name, epoch = page.name(fields, "producer"), page.number(fields, "epoch")
        if not rights.may_send(name):
            # whatever else is wrong with it
            raise page.Faulty("denied", "malformed", "version")
        known = self.known.get(name)
        if kind == "hello":
            before = known.epoch if known is not None else -1
            reasons = {"stale-epoch"} if epoch < before else set()
            if epoch > max(before, NOW + DAY):
                reasons.add("epoch")
            try:
                page.check_hello(fields, data)
            except page.Faulty as faulty:
                reasons |= faulty.reasons
            if reasons:
                raise page.Faulty(*reasons)
            return "hello"
        page.check_batch(fields)
        if known is None or known.epoch != epoch:
            raise page.Faulty("stale-epoch" if known and epoch < known.epoch else "epoch")
        sequence = fields["seq"]
        if sequence <= len(known.batches):
            if list(known.batches[sequence - 1]) != list(data):
                # the daemon compares checksums of the frames between header and checksum
                joined = b"".join(known.batches[sequence - 1])
                if crc32c(joined) != crc32c(b"".join(data)):
                    raise page.Faulty("conflict")
            return "repeat"
        if sequence > len(known.batches) + 1:
            raise page.Faulty("gap")
        if sum(map(len, data)) > MOST:
            raise page.Faulty("too-large", "credit")
        try:
            self.expected = page.reads_of(fields, data)
        except page.Faulty as faulty:
            raise page.Faulty(*faulty.reasons, "credit") from None
        return "batch"

    def _apply(self, what: str, frames: Sequence[bytes]) -> None:
        """Update the expected state of the producer of an accepted message."""
        if what == "repeat":
            return
        fields, data = page.opened(frames)
        name = fields["producer"]
        if what == "hello":
            known = self.known.setdefault(name, Known())
            known.epoch = max(known.epoch, fields["epoch"])
            return
        self.known[name].batches.append(data)
        item, expected = self.taken, self.expected
        assert item is not None and expected is not None
        assert item.key[:3] == (name, fields["epoch"], fields["seq"])
        assert item.key.mark == fields.get("mark", b"")
        growing = fields.get("growing", False)
        assert (item.growing is not None) == growing
        batch = item.batch if item.growing is None else item.growing.batch
        assert list(batch.names) == expected.names
        assert batch.offsets.tolist() == expected.offsets
        assert np.asarray(batch.bases).tobytes() == expected.codes
        assert not growing or len(item.batch) == 0

    # ---- the daemon and honest producers go on ---------------------------------------------------

    def go_on(self) -> None:
        """Run a turn: store batches, send answers, let honest producers react."""
        rng = self.rng
        self.now += rng.choice((0.0, 0.01, 0.3))
        if rng.random() < 0.6:
            self._store(rng.randrange(len(self.waiting) + 1))
        if rng.random() < 0.02:
            self._restart()
        self._turn()

    def _turn(self) -> None:
        worker, rng = self.worker, self.rng
        self._tick(worker)
        for one in self.honest:
            core = one.core
            if core.must_ask(self.now):
                self._say(one, core.hello())
            while (message := core.batch()) is not None:
                self._say(one, message)
                if rng.random() < 0.3:
                    break
        if epochs := worker.core.epochs():
            self._begin(epochs)
        routes = {one.route: one for one in self.honest}
        for route, header in worker.core.answers():
            frames = answer(header)
            if (one := routes.get(route)) is not None and rng.random() < 0.95:
                one.hear(frames, self.now)

    def _say(self, one: Honest, message: Outgoing) -> None:
        frames = sealed([pack(message.header), *map(bytes, message.frames)])
        one.core.went_out(message, self.now)
        chance = self.rng.random()
        if chance < 0.05:
            return
        if chance < 0.08:
            at = self.rng.randrange(len(frames))
            damaged = bytearray(frames[at])
            if damaged:
                damaged[self.rng.randrange(len(damaged))] ^= 1 << self.rng.randrange(8)
                frames = [*frames[:at], bytes(damaged), *frames[at + 1 :]]
        for _ in range(2 if chance > 0.95 else 1):
            self._handle(one.route, frames, EVERYTHING)

    def _store(self, count: int) -> None:
        """Store the first of the waiting batches, and publish their results."""
        items, self.waiting = self.waiting[:count], self.waiting[count:]
        for item in items:
            name, epoch, sequence, content, mark = item.key
            self.stored.append((name, epoch, sequence, item.names, _letters(item)))
            self.contents[name, epoch, sequence] = content
            if self.durable[name][0] <= epoch:
                self.durable[name] = epoch, sequence, mark
        if items:
            self.worker.core.published(items)

    def _restart(self) -> None:
        """Kill and restart the daemon: unstored batches are lost, and producers greet again."""
        self.close()
        self.waiting.clear()
        for name in [name for name in self.known if name not in self.durable]:
            del self.known[name]
        for name, (epoch, received, _) in self.durable.items():
            known = self.known[name]
            known.epoch = epoch
            del known.batches[received:]
        self.worker = self._start()

    def end(self) -> None:
        """Without further fuzzed messages, all batches of honest producers must be stored once."""
        for _ in range(400):
            if all(one.core.synced and not one.core.account.kept for one in self.honest):
                break
            self.now += 0.3
            self._store(len(self.waiting))
            self._turn()
        for one in self.honest:
            assert not one.core.account.kept, "an honest producer does not get on"
            found = [(names, letters) for name, _, _, names, letters in self.stored
                     if name == one.core.name]  # fmt: skip
            sent = [(frames[0], frames[2].translate(page.CODES)) for frames in one.sent]
            assert found == sent, "batches of an honest producer are lost, twice or changed"
        self._store(len(self.waiting))
        names = {one.core.name for one in self.honest} | {*self.known}
        assert {name for name, *_ in self.stored} <= names


def _letters(item: Accepted) -> bytes:
    return np.asarray(item.batch.bases).tobytes()
