"""A worker of a daemon: holds a dictionary and matches parts of batches against it.

If it is on the daemon's node, the two talk by a ``NodeLine``: two pipes, and memory that both
share. For a request and its answer, a call of Ray takes 3 ms of CPU time and its object store as
much again, in which a worker matches a million bases. Here requests are written to memory that is
used again and again, and a pipe says where. The memory is divided into slots, and an answer takes
the slot of its request.

Pipes and memory have no names: the daemon finds them among the open files of the worker. So nothing
is left of them after a kill, and the pipe of a worker that has ended says so.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import select
import struct
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from streamer.cluster.cluster_tasks import check_version
from streamer.cluster.connecting import Parts, packed, unpacked
from streamer.errors import StreamerError
from streamer.matching.cpu import CpuEngine
from streamer.matching.events import Bits
from streamer.matching.match_engine import NO_CODES
from streamer.sequences.read_batch import ReadBatch
from trie.codes import pack_codes, unpack_codes
from trie.cpu.team import Team
from trie.strands import Strands
from trie.windows import MATCH, MISMATCH, window_codes

SLOTS = 2
SLOT_BYTES = 1 << 26
"""Bytes of a slot, of which only those in use take memory; larger objects go through Ray."""

_ALIGN = 64
_MOST_PARTS = 8
_MESSAGE = struct.Struct(f"{3 + _MOST_PARTS}q")  # writes and reads of so few bytes are atomic


class Address(NamedTuple):
    """Where the daemon finds a line.

    host: names the view of process ids. memory, answers, requests: descriptors of the worker. name:
    of the pipe of answers, unlike that of any other.
    """

    host: str
    pid: int
    memory: int
    answers: int
    requests: int
    name: str


class NodeLine:
    """One end of a line, from its descriptors."""

    def __init__(self, memory: int, reads: int, writes: int) -> None:
        self._bytes = np.frombuffer(mmap.mmap(memory, SLOTS * SLOT_BYTES), dtype=np.uint8)
        self.reads = reads
        self._writes = writes

    @classmethod
    def new(cls) -> tuple[Self, Address]:
        """Create a line; return the worker's end."""
        memory = os.memfd_create("requests")
        os.truncate(memory, SLOTS * SLOT_BYTES)
        requests, answers = os.pipe(), os.pipe()
        pid = os.getpid()
        address = Address(
            _host(), pid, memory, answers[0], requests[1], os.readlink(_file(pid, answers[0]))
        )
        return cls(memory, requests[0], answers[1]), address

    @classmethod
    def at(cls, address: Address) -> Self | None:
        """Return the daemon's end; None if the worker is on another node, or has ended."""
        if address.host != _host():
            return None
        opened: list[int] = []
        try:
            # its process id may have been given to another process
            if os.readlink(_file(address.pid, address.answers)) != address.name:
                return None
            for descriptor, mode in (
                (address.memory, os.O_RDWR),
                (address.answers, os.O_RDONLY),
                (address.requests, os.O_WRONLY),
            ):
                opened.append(os.open(_file(address.pid, descriptor), mode))
            line = cls(*opened)
        except OSError:
            for descriptor in opened:
                os.close(descriptor)
            return None
        os.close(opened[0])
        return line

    def send(self, slot: int, parts: Parts, number: int = 0) -> bool:
        """Send a packed object, or no parts, and a number; return False if it does not fit."""
        sizes = [part.size for part in parts]
        if sum(map(_rounded, sizes)) > SLOT_BYTES:
            return False
        for there, part in zip(self._parts(slot, sizes), parts, strict=True):
            there[:] = part
        unused = [0] * (_MOST_PARTS - len(sizes))
        # that the other process has ended shows in ``receive``
        with contextlib.suppress(BrokenPipeError):
            os.write(self._writes, _MESSAGE.pack(slot, number, len(sizes), *sizes, *unused))
        return True

    def receive(self) -> tuple[int, Parts, int]:
        """Wait for what is sent: its slot, the parts, which stay there, and the number.

        EOFError if the worker has ended.
        """
        message = os.read(self.reads, _MESSAGE.size)
        if not message:
            raise EOFError
        slot, number, count, *sizes = _MESSAGE.unpack(message)
        return slot, self._parts(slot, sizes[:count]), number

    def close(self) -> None:
        """Close the pipes of this end."""
        os.close(self.reads)
        os.close(self._writes)

    def _parts(self, slot: int, sizes: list[int]) -> Parts:
        at = slot * SLOT_BYTES
        parts = []
        for size in sizes:
            parts.append(self._bytes[at : at + size])
            at += _rounded(size)
        return parts


def readable(lines: Iterable[NodeLine], seconds: float) -> list[NodeLine]:
    """Wait for the first of these to receive; return those that do not wait in ``receive``."""
    poll = select.poll()
    ends = {line.reads: line for line in lines}
    for end in ends:
        poll.register(end, select.POLLIN)
    return [ends[end] for end, _ in poll.poll(seconds * 1000)]


def _rounded(size: int) -> int:
    return -(-size // _ALIGN) * _ALIGN


def _file(pid: int, descriptor: int) -> str:
    return f"/proc/{pid}/fd/{descriptor}"


def _host() -> str:
    """Name this boot of this machine, and this view of its process ids."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return f"{boot} {Path('/proc/self/ns/pid').readlink()}"


LEARN_SECONDS = 1.0
"""How long a request that comes by a line waits for k-mers, which come through Ray."""

Boxed = list[Any]
"""A reference in a list: Ray fetches direct arguments before the call, which blocks all others."""


@dataclass(frozen=True)
class WorkerSetup:
    """The k-mers of a worker.

    codes: uint64, ascending. places: uint32, as in ``CpuEngine``, if they are requested. low, high:
    the shard holds the k-mers with codes in [low, high).
    """

    k: int
    strands: Strands
    codes: NDArray[np.uint64]
    places: NDArray[np.uint32] | None
    low: int = 0
    high: int = 1 << 64

    def owned(self, codes: NDArray[np.uint64]) -> NDArray[np.uint64]:
        """Return the codes of its shard: low <= code < high."""
        if self.low == 0 and self.high == 1 << 64:
            return codes
        return codes[(codes >= self.low) & (codes < self.high)]


@dataclass(frozen=True)
class MatchRequest:
    """Reads, or parts of them, to match; ``missed`` also requests the codes of mismatches.

    bases, gaps: from ``pack_codes``, because sending a byte takes longer than packing a base.
    """

    bases: NDArray[np.uint8]
    gaps: NDArray[np.int64]
    offsets: NDArray[np.int64]
    missed: bool

    @classmethod
    def of(
        cls, codes: NDArray[np.uint8], offsets: NDArray[np.int64], *, missed: bool
    ) -> MatchRequest:
        """Make a request from base codes (uint8[n])."""
        return cls(*pack_codes(codes), offsets, missed)

    def codes(self) -> NDArray[np.uint8]:
        """Return the base codes, uint8[n]."""
        return unpack_codes(self.bases, self.gaps, int(self.offsets[-1]))


@dataclass(frozen=True)
class MatchAnswer:
    """The answer to a request.

    bits: as in ``Events``. places: uint32, of the matches in order, or None. missed: uint64, the
    codes of mismatches in order.
    """

    bits: Bits
    places: NDArray[np.uint32] | None
    missed: NDArray[np.uint64]


class MatchWorker:
    """A Ray actor. It sends heartbeats while a long call runs."""

    _setup: WorkerSetup
    _engine: CpuEngine
    _learned = 0
    _fault: Exception | None = None  # of ``learn``

    def load(self, version: str, setup: Boxed, grown: Boxed, learned: int) -> Address:
        """Load the dictionary and the k-mers learned so far; return where its line is.

        learned: how many the daemon counts, as ``match`` does.
        """
        check_version(version, "the daemon")
        self._turn = threading.Condition()
        self._setup = setup_ = unpacked(self.fetched(setup))
        self._canonical = setup_.strands != "forward"
        with Team(1):
            known = setup_.k, setup_.strands, setup_.codes, setup_.places
            self._engine = CpuEngine(*known, threads=1)
        self.learn_all(grown, learned)
        line, address = NodeLine.new()
        threading.Thread(target=self._serve, args=(line,), daemon=True).start()
        return address

    def _serve(self, line: NodeLine) -> None:
        """Answer what comes by the line; with nothing if it has to come through Ray.

        Then the answer does not fit, or Ray passes an error on.
        """
        while True:
            try:
                slot, request, learned = line.receive()
            except EOFError:
                line.close()
                return
            answer: Parts = []
            with contextlib.suppress(Exception):
                with self._turn:
                    self._turn.wait_for(partial(self._has, learned), LEARN_SECONDS)
                answer = self.match(request, learned)
            if not line.send(slot, answer):
                line.send(slot, [])

    def _has(self, learned: int) -> bool:
        return self._learned >= learned

    def alive(self, seconds: float) -> None:
        """Return after so many seconds, as a heartbeat."""
        time.sleep(seconds)

    def fetched(self, boxed: Boxed) -> Any:
        """Fetch an object from the memory of this node or another."""
        return import_module("ray").get(boxed[0])

    def learn_all(self, codes: Boxed, learned: int) -> None:
        """Like ``learn``, during startup of the worker."""
        self.learn(self.fetched(codes))
        self._learned = learned

    def learn(self, codes: NDArray[np.uint64]) -> None:
        """Add k-mers that the stream has added; after an error, ``match`` raises it, too."""
        count = codes.size
        with self._turn:
            try:
                owned = self._setup.owned(codes)
                # Ray's arrays are read-only, for which kernels would be compiled again
                codes = owned.copy() if owned is codes else owned
                if codes.size:
                    with Team(1):
                        self._engine.learn(codes)
            except Exception as error:
                # nobody waits for the outcome of this call
                self._fault = error
                raise
            self._learned += count
            self._turn.notify_all()

    def match(self, request: Parts, learned: int) -> Parts:
        """Answer a packed MatchRequest with a packed MatchAnswer.

        learned: how many k-mers the stream has added before. The worker may lack some if ``learn``
        failed, or if Ray could not fetch its argument.
        """
        with self._turn:
            if self._learned != learned:
                message = f"it has {self._learned} of {learned} added k-mers"
                raise self._fault or StreamerError(message)
            with Team(1):
                return packed(self._answer(unpacked(request)))

    def _answer(self, asked: MatchRequest) -> MatchAnswer:
        bases = asked.codes()
        batch = ReadBatch([""] * (asked.offsets.size - 1), asked.offsets, bases)
        events, places = self._engine.in_set(batch)
        missed = NO_CODES
        if asked.missed:
            k = self._setup.k
            windows, starts = window_codes(bases, asked.offsets, k, canonical=self._canonical)
            missed = windows[events.codes[starts] == MISMATCH]
        hits = None if places is None else places[events.codes == MATCH]
        return MatchAnswer(events.bits, hits, missed)
