"""Self-test: check every engine and kernel against the definition, and measure its speed."""

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from streamer.dictionary.targets import Dictionary
from streamer.matching.matcher import StreamMatcher
from streamer.matching.result import BatchResult
from streamer.sequences.read_batch import ReadBatch
from trie.codes import decode_kmers, with_reverse_complements
from trie.cpu.threads import usable_cores

K = 15
LOW = 0.5
"""A speed is called low below this share of what such a machine reached."""


@dataclass(frozen=True, slots=True)
class Reached:
    """The throughput of a machine in this test, in bases per second by mode."""

    machine: str
    cores: int
    rates: Mapping[str, float]


REACHED = {
    "cpu": (Reached("an Intel Xeon with 16 cores", 16, {"frozen": 300e6, "grow": 45e6}),),
    "cuda": (Reached("an NVIDIA H200 with 16 cores", 16, {"frozen": 550e6, "grow": 110e6}),),
}
"""Idle machines, by device."""


@dataclass(frozen=True)
class Outcome:
    """The outcome of one test; ``rate`` in bases a second, 0 if not measured.

    reached: by ``machine``, measured the same way. causes: what was seen to slow this one down.
    """

    device: str
    what: str
    right: bool
    rate: float = 0.0
    reached: float = 0.0
    machine: str = ""
    causes: tuple[str, ...] = ()

    def line(self) -> str:
        """Return device, test, verdict, and speed; if it is low, with the causes that were seen."""
        parts = [self.device, self.what, "ok" if self.right else "WRONG"]
        if self.rate:
            speed = f"{self.rate / 1e6:.0f} M bases/s; {self.machine} reached "
            speed += f"{self.reached / 1e6:.0f} M"
            if self.rate < LOW * self.reached:
                speed += f"; low: {', '.join(self.causes) or 'no cause was seen'}"
            parts.append(speed)
        return "\t".join(parts)


class Watch:
    """Observes this machine during a measurement, for what may slow it down."""

    def __init__(self, device: str) -> None:
        self._device = device
        self._begin = self._now()

    @staticmethod
    def _now() -> tuple[float, float, float, float]:
        """Seconds: of the clock; of all cores, busy; taken by the host; of this process."""
        fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]
        ticks = [int(field) / os.sysconf("SC_CLK_TCK") for field in fields]
        user, nice, system, _, _, irq, soft, stolen = ticks
        own = os.times()
        return time.perf_counter(), user + nice + system + irq + soft, stolen, own.user + own.system

    def causes(self) -> tuple[str, ...]:
        """The causes seen since, in words."""
        clock, busy, stolen, own = (
            after - before for after, before in zip(self._now(), self._begin, strict=True)
        )
        causes = []
        others = (busy - own) / max(clock, 1e-3)
        if others > _OTHERS * usable_cores():
            causes.append(f"other programs kept {others:.1f} of {usable_cores()} cores busy")
        if stolen > _OTHERS * clock * usable_cores():
            share = stolen / clock
            causes.append(f"the host of this virtual machine took {share:.1f} of its cores")
        return tuple(causes + (_of_gpu() if self._device == "cuda" else []))


_LONG_ENOUGH = 0.5  # seconds, to see what else ran
_OTHERS = 0.1  # share of the cores that others may have
_BUS = 20e9  # bytes a second to a GPU
_BUS_BYTES = 1 << 27


def _of_gpu() -> list[str]:
    """The causes that slow the first GPU down."""
    from gpu.card.intrinsics import SIMULATED, cuda

    if SIMULATED:
        return []
    here = cuda.pinned_array(_BUS_BYTES, np.uint8)
    there = cuda.device_array(_BUS_BYTES, np.uint8)
    seconds = []
    for _ in range(3):
        begin = time.perf_counter()
        there.copy_to_device(here)
        cuda.synchronize()
        seconds.append(time.perf_counter() - begin)
    rate = _BUS_BYTES / min(seconds)
    return [f"the bus to the GPU carries {rate / 1e9:.0f} GB/s"] * (rate < _BUS)


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
        known_kmers = set(decode_kmers(known.codes, K))
        want = _defined(batch, known_kmers, grow=mode == "grow")
        for kernel in kernels:
            result = _run(batch, known, mode, kernel=kernel, chunk=1_000, device=device)
            yield Outcome(device, f"{mode}, {kernel}", result.events.tolist() == want)


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
            result = _run(
                batch, stored, "frozen", exact=False, distance=distance, strands="both",
                kernel=kernel, device=device, chunk=100,
            ).near  # fmt: skip
            assert result is not None
            got = [distance + 1] * bases.size
            for end, value in zip(result.end.tolist(), result.distance.tolist(), strict=True):
                got[end - 1] = value
            told = [min(value, distance + 1) for value in want]
            yield Outcome(device, f"distance {distance}, {kernel}", got == told)


def _speed(device: Any, total: int) -> Iterator[Outcome]:
    batch = _reads(total, 2)
    # one target: the sets of several would have to be found for each window
    target = ReadBatch(["t"], np.array([0, batch.bases.size]), batch.bases)
    known = Dictionary.from_batches([target], K, "canonical")
    for mode in ("frozen", "grow"):
        with closing(StreamMatcher.of(known, mode=mode, device=device)) as matcher:
            matcher.match([batch])
            seconds: list[float] = []
            watch = Watch(device)
            while len(seconds) < 3 or sum(seconds) < _LONG_ENOUGH:
                begin = time.perf_counter()
                (result,) = matcher.match([batch])
                seconds.append(time.perf_counter() - begin)
            causes = watch.causes()
        right = not bool((result.events == 2).any())
        cores = usable_cores()
        like = min(REACHED[device], key=lambda machine: abs(machine.cores - cores))
        causes += (f"this machine has {cores} cores",) * (cores < LOW * like.cores)
        yield Outcome(
            device, f"{mode}, {total:,} bases", right, batch.bases.size / min(seconds),
            like.rates[mode], like.machine, causes,
        )  # fmt: skip


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
