"""Self-test: check every engine and kernel against the definition, and measure its speed."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import numpy as np

from streamer.dictionary.targets import Dictionary
from streamer.matching.matcher import StreamMatcher
from streamer.matching.result import BatchResult
from streamer.sequences.read_batch import ReadBatch
from trie.codes import decode_kmers, with_reverse_complements

K = 15
EXPECTED = {
    "cpu": {"frozen": 20e6, "grow": 20e6},
    "cuda": {"frozen": 1000e6, "grow": 250e6},
}
"""Bases a second, from host memory to host results, below which something is probably wrong: for
one core, and for one GPU with at least eight cores, which pack reads and copy new k-mers.
"""

CAUSES = {
    "cpu": "cores shared with other work, a slow clock, or no 512-bit vectors",
    "cuda": "a card or cores shared with other work, few cores to pack reads, or a slow bus",
}


@dataclass(frozen=True)
class Outcome:
    """The outcome of one test; ``rate`` in bases a second, 0 if not measured."""

    device: str
    what: str
    right: bool
    rate: float = 0.0
    expected: float = 0.0

    def line(self) -> str:
        """Return device, test, verdict, and speed with a likely cause if it is low."""
        parts = [self.device, self.what, "ok" if self.right else "WRONG"]
        if self.rate:
            speed = f"{self.rate / 1e6:.0f} M bases/s, {self.expected / 1e6:.0f} M expected"
            if self.rate < self.expected:
                speed += f"; likely cause: {CAUSES[self.device]}"
            parts.append(speed)
        return "\t".join(parts)


def _reads(total: int, seed: int) -> ReadBatch:
    """Make a few repetitive reads with gaps."""
    rng = np.random.default_rng(seed)
    text = rng.integers(0, 4, total // 2).astype(np.uint8)
    bases = np.concatenate((text, (3 - text)[::-1]))
    bases[:: max(7, total // 50)] = 4
    offsets = np.array([0, total // 3, bases.size], dtype=np.int64)
    return ReadBatch(["a", "b"], offsets, bases)


def _defined(batch: ReadBatch, known: set[str], *, grow: bool) -> list[int]:
    """Compute the event at every symbol by definition: window by window, with strings and a set."""
    turned = str.maketrans("ACGT", "TGCA")
    events = [0] * batch.bases.size
    for start, stop in zip(batch.offsets[:-1].tolist(), batch.offsets[1:].tolist(), strict=True):
        text = "".join("ACGT-"[code] for code in batch.bases[start:stop])
        for at in range(len(text) - K + 1):
            kmer = text[at : at + K]
            if "-" not in kmer:
                kmer = min(kmer, kmer[::-1].translate(turned))
                events[start + at] = 1 if kmer in known else 2
                if grow:
                    known.add(kmer)
    return events


def _run(batch: ReadBatch, known: Dictionary, mode: Any, **options: Any) -> BatchResult:
    with closing(StreamMatcher.of(known, mode=mode, **options)) as matcher:
        return matcher.match([batch])[0]


def _right(device: Any, kernels: tuple[str, ...]) -> Iterator[Outcome]:
    batch = _reads(4_000, 1)
    target = ReadBatch(["t"], np.array([0, 900], dtype=np.int64), batch.bases[300:1200])
    for mode in ("frozen", "grow"):
        known = Dictionary.from_batches([target], K, "canonical")
        held = set(decode_kmers(known.codes, K))
        want = _defined(batch, held, grow=mode == "grow")
        for kernel in kernels:
            found = _run(batch, known, mode, kernel=kernel, chunk=1_000, device=device)
            yield Outcome(device, f"{mode}, {kernel}", found.events.tolist() == want)


def _defined_near(text: list[int], patterns: list[list[int]], limit: int) -> list[int]:
    """Compute the least distance over all patterns at every end from 1, by Sellers' recurrence."""
    best = [limit + 1] * len(text)
    for pattern in patterns:
        column = list(range(len(pattern) + 1))
        for at, symbol in enumerate(text):
            diagonal, column[0] = column[0], 0
            for i, wanted in enumerate(pattern, 1):
                cost = min(diagonal + (wanted != symbol), column[i] + 1, column[i - 1] + 1)
                diagonal, column[i] = column[i], cost
            best[at] = min(best[at], column[-1])
    return best


def _near(device: Any, kernels: tuple[str, ...]) -> Iterator[Outcome]:
    """Test Levenshtein distances, with pieces looked up one by one and in pairs."""
    rng = np.random.default_rng(4)
    for distance in (1, 3):
        bases = rng.integers(0, 4, 700).astype(np.uint8)
        target = ReadBatch(["t"], np.array([0, 60], dtype=np.int64), bases[100:160].copy())
        bases[110:150:13] ^= 1
        bases[400:460] = 3 - bases[100:160][::-1]
        bases[425] = 4
        stored = Dictionary.from_batches([target], K, "forward")
        codes = with_reverse_complements(stored.codes, K)
        patterns = [["ACGT".index(c) for c in kmer] for kmer in decode_kmers(codes, K)]
        want = _defined_near(bases.tolist(), patterns, distance)
        batch = ReadBatch(["a"], np.array([0, bases.size], dtype=np.int64), bases)
        for kernel in kernels:
            found = _run(
                batch, stored, "frozen", exact=False, distance=distance, strands="both",
                kernel=kernel, device=device, chunk=100,
            ).near  # fmt: skip
            assert found is not None
            got = [distance + 1] * bases.size
            for end, value in zip(found.end.tolist(), found.distance.tolist(), strict=True):
                got[end - 1] = value
            told = [min(value, distance + 1) for value in want]
            yield Outcome(device, f"distance {distance}, {kernel}", got == told)


def _speed(device: Any, total: int) -> Iterator[Outcome]:
    batch = _reads(total, 2)
    known = Dictionary.from_batches([batch], K, "canonical")
    for mode in ("frozen", "grow"):
        with closing(StreamMatcher.of(known, mode=mode, device=device)) as matcher:
            matcher.match([batch])
            least = float("inf")
            for _ in range(3):
                begin = time.perf_counter()
                (found,) = matcher.match([batch])
                least = min(least, time.perf_counter() - begin)
        right = not bool((found.events == 2).any())
        rate, expected = batch.bases.size / least, EXPECTED[device][mode]
        yield Outcome(device, f"{mode}, {total:,} bases", right, rate, expected)


def on_cpu() -> Iterator[Outcome]:
    """Test the kernels on the CPU."""
    yield from _right("cpu", ("index", "walk"))
    yield from _near("cpu", ("pieces", "lanes"))
    yield from _speed("cpu", 2_000_000)


def on_cuda() -> Iterator[Outcome]:
    """Test the kernels on the CUDA devices."""
    yield from _right("cuda", ("auto", "buckets", "walk", "shuffle", "naive"))
    yield from _near("cuda", ("pieces",))
    yield from _speed("cuda", 64_000_000)
