"""A worker of a daemon: holds a dictionary and matches parts of batches against it."""

from __future__ import annotations

import contextlib
import threading
import time
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamer import __version__
from streamer.cluster.node_line import Address, NodeLine
from streamer.cluster.shared_objects import Parts, packed, unpacked
from streamer.dictionary.targets import Dictionary
from streamer.errors import StreamerError
from streamer.matching.cpu import CpuEngine
from streamer.matching.events import Bits, Events
from streamer.matching.match_engine import NO_CODES, NO_EVENTS, MatchTask
from streamer.sequences.read_batch import ReadBatch
from trie.cpu.team import Team
from trie.packed_codes import pack_codes, unpack_codes
from trie.windows import MATCH, MISMATCH, NO_SET, window_codes

LEARN_SECONDS = 1.0
"""How long a request that comes by a line waits for k-mers, which come through Ray."""

Boxed = list[Any]
"""A reference in a list: Ray fetches direct arguments before the call, which blocks all others."""


@dataclass(frozen=True)
class WorkerSetup:
    """The dictionary of a worker, with labels instead of target sets.

    changes: k-mers will be added. with_sets: labels are requested. sets_at: labels of the records.
    low, high: the shard holds the k-mers with codes in [low, high).
    """

    dictionary: Dictionary
    changes: bool
    with_sets: bool
    sets_at: NDArray[np.uint32] | None
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

    bits: as in ``Events``. labels: uint32, of the matches in order, or None. missed: uint64, the
    codes of mismatches in order.
    """

    bits: Bits
    labels: NDArray[np.uint32] | None
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
        if version != __version__:
            message = f"a worker has version {__version__} of kmer-streamer, the daemon {version}"
            raise StreamerError(message)
        self._turn = threading.Condition()
        self._setup = setup_ = unpacked(self.fetched(setup))
        self._canonical = setup_.dictionary.strands != "forward"
        with Team(1):
            self._engine = CpuEngine(
                setup_.dictionary, walks=False, with_sets=setup_.with_sets,
                changes=setup_.changes, threads=1, sets_at=lambda: setup_.sets_at,
            )  # fmt: skip
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
        size = bases.size
        batch = ReadBatch([""] * (asked.offsets.size - 1), asked.offsets, bases)
        sets = np.full(size, NO_SET, dtype=np.uint32) if self._setup.with_sets else None
        whole = np.array([[0, size]], dtype=np.int64)
        none = NO_EVENTS if self._engine.finds_bits else np.zeros(size, dtype=np.uint8)
        task = MatchTask(batch, [(False, whole)], 0, None, False, none, sets, None, None)
        (found,) = self._engine.run(task)
        events = found.events or Events(size, codes=task.events)
        missed = NO_CODES
        if asked.missed:
            k = self._setup.dictionary.k
            windows, starts = window_codes(bases, asked.offsets, k, canonical=self._canonical)
            missed = windows[events.codes[starts] == MISMATCH]
        labels = None if sets is None else sets[events.codes == MATCH]
        return MatchAnswer(events.bits, labels, missed)
