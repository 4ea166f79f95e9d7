"""Producers: each has a file of batches to send, and resumes it after it was killed."""

from __future__ import annotations

import random
from collections.abc import Callable, Generator
from dataclasses import dataclass

import msgpack

from streamer.client.client_errors import DaemonSilentError, RefusedError
from streamer.client.core.producer import Batch, Outgoing, ProducerCore
from streamer.protocol.payloads import encode_reads
from streamer.protocol.wire import (
    Buffer,
    Reason,
    WireError,
    crc32c,
    pack,
    seal,
    size_of,
    unpack,
    unseal,
)
from tests.simulation.clock import EventClock, Pause, Process, Steps, Thread
from tests.simulation.network import Dealer, Endpoint, Path
from tests.simulation.promises import Promises

ANSWER_SECONDS = 5.0
_POLL_SECONDS = 0.1
_READS, _LONGEST = 3, 14


@dataclass
class Job:
    """The file of a producer. pace: mean seconds between two batches. done: all is durable."""

    name: str
    batches: list[list[Buffer]]
    pace: float
    done: bool = False


def job(name: str, chance: random.Random, batches: int, pace: float) -> Job:
    """A file of random reads."""
    made = []
    for number in range(batches):
        reads = []
        for read in range(chance.randrange(_READS + 1)):
            letters = chance.choices("ACGTN", (9, 9, 9, 9, 1), k=chance.randrange(_LONGEST))
            reads.append((f"{number}.{read}", "".join(letters)))
        frames = encode_reads(reads)
        assert msgpack.unpackb(frames[0]) == [read for read, _ in reads]
        made.append(frames)
    return Job(name, made, pace)


class ProducerHost(Process):
    """A process that sends the rest of its file. ended: called when it ends by itself.

    It models the shell of ``streamer.client.producer`` and the program
    ``streamer send --name X --resume``.
    """

    def __init__(
        self,
        clock: EventClock,
        path: Path,
        endpoint: Endpoint,
        job: Job,
        number: int,
        promises: Promises,
        ended: Callable[[], None],
    ) -> None:
        super().__init__(clock, f"{job.name} {number}")
        self.job = job
        self._path = path
        self._promises = promises
        self._ended = ended
        self._core = ProducerCore("ingest", job.name, clock.wall // 1_000_000, ANSWER_SECONDS)
        # positions in the file: where it began, and what was handed over
        self._first = self._handed = 0
        self._thread = Thread(self, self._run(), self._fails)
        self._socket = Dealer(self, path, endpoint, self._thread.wake, immediate=True)

    def _run(self) -> Steps:
        core, job = self._core, self.job
        yield 0.0
        yield from self._connect()
        self._first = self._handed = int(core.mark or b"0")
        self.note(f"begins with batch {self._first + 1} of {len(job.batches)}")
        self._promises.resumed(job.name, self._first)
        for number in range(self._first, len(job.batches)):
            if job.pace:
                yield self.clock.random.expovariate(1 / job.pace)
            if self.clock.random.random() < 0.5:
                self._exchange()
            if core.takes_no_more:
                core.greet_anew()
            yield from self._connect()
            frames = job.batches[number]
            mark = b"%d" % (number + 1)
            core.add(Batch(frames, size_of(frames), crc32c(frames), 1, None, mark=mark))
            self._handed = number + 1
            yield from self._until(lambda: core.all_sent)
        core.owes_answer(self.clock.now)
        yield from self._until(lambda: core.synced and not core.account.kept)
        yield from self._until(lambda: core.matched >= core.account.durable)
        job.done = True
        self.note("has sent all of its file")
        self._end()

    def _connect(self) -> Steps:
        self._core.owes_answer(self.clock.now)
        yield from self._until(lambda: self._core.synced)

    def _until(self, done: Callable[[], bool]) -> Generator[float, None, None]:
        self._exchange()
        while not done():
            now = self.clock.now
            self._core.check(now, None, "")
            if self._core.must_ask(now):
                self._send(self._core.hello())
            if not self._socket.inbox:
                yield Pause(_POLL_SECONDS)
            self._exchange()

    def _exchange(self) -> None:
        while self._socket.inbox:
            life, frames = self._socket.inbox.popleft()
            header = unpack(unseal(frames)[0])
            self._promises.session(life, header)
            self._core.hear(header, self.clock.now)
            self._promises.durable(self.job.name, self._handed - len(self._core.account.kept))
        while (message := self._core.batch()) is not None and self._send(message):
            pass

    def _send(self, message: Outgoing) -> bool:
        if not self._socket.send(seal([pack(message.header), *message.frames])):
            self._core.stayed(message)
            return False
        self._core.went_out(message, self.clock.now)
        self.note(lambda: f"sends {_shown(message)}")
        return True

    def _fails(self, error: Exception) -> None:
        match error:
            case DaemonSilentError():
                pass
            case RefusedError(reason=Reason.DRAINING):
                pass
            case WireError() | RefusedError(reason=Reason.CHECKSUM) if self._path.noise.damaging:
                pass
            case _:
                self._promises.unexpected(self.name, error)
        self.note(f"fails: {error}")
        self._end()

    def _end(self) -> None:
        self.kill("exit")
        self._ended()


def _shown(message: Outgoing) -> str:
    header = message.header
    if not message.sequence:
        return f"hello {header['epoch']}"
    return f"batch {header['epoch']}.{message.sequence} ({header['mark'].decode()} of the file)"
