"""Measurements of the full Levenshtein distance to a dictionary, and sassy in the same run.

Random k-mers in random text, one strand, starts and k-mers of the hits included. Rates on the CPU
are of one thread by its own clock, the best of some runs; on CUDA medians by events, data on the
card. Every function returns plain rows.
"""

from __future__ import annotations

import time
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamer.bench.timing import least_seconds, median_on_card
from trie.levenshtein import NOTHING, Patterns, unpack
from trie.levenshtein.lanes import nearest_words as by_lanes
from trie.levenshtein.pieces import build
from trie.levenshtein.scan import nearest_words as by_pieces

Row = dict[str, Any]
Batch = tuple[NDArray[np.uint8], NDArray[np.int64]]

DICTIONARIES: tuple[tuple[int, int, int], ...] = (
    (96, 24, 3),
    (96, 24, 4),
    (10_000, 21, 2),
    (10_000, 21, 3),
    (1_000_000, 21, 1),
    (1_000_000, 21, 2),
)
"""k-mers, k and D."""

SASSY_MISSING = "sassy is not installed: pip install 'kmer-streamer[bench]'"
_LETTERS = np.frombuffer(b"ACGT", dtype=np.uint8)


def random_patterns(kmers: int, k: int, distance: int) -> Patterns:
    """So many random k-mers."""
    codes = np.random.default_rng(k).integers(0, 4**k, kmers, dtype=np.uint64)
    return Patterns.of(np.unique(codes), k, distance, both=False)


def random_batch(total: int) -> Batch:
    """Reads of 10,000 random bases."""
    bases = np.random.default_rng(1).integers(0, 4, total).astype(np.uint8)
    return bases, np.append(np.arange(0, total, 10_000), total).astype(np.int64)


def dictionaries(total: int) -> list[Row]:
    """Ends a second of one thread, for dictionaries of several sizes."""
    bases, offsets = random_batch(total)
    rows: list[Row] = []
    for kmers, k, distance in DICTIONARIES:
        patterns = random_patterns(kmers, k, distance)
        began = time.thread_time()
        index = build(patterns)
        built = time.thread_time() - began
        stop = max(1000, total // (1 if kmers < 1_000 else 4 if distance < 3 else 16))

        def pieces(
            patterns: Patterns = patterns, index: Any = index, stop: int = stop
        ) -> NDArray[np.uint32]:
            words = by_pieces(patterns, index, bases, offsets, stop=stop)
            unpack(words, 0, patterns)
            return words

        seconds = least_seconds(pieces, 3, clock=time.thread_time)
        few = min(stop, max(1000, 200_000_000 // (kmers * 32)))
        lanes = least_seconds(
            lambda p=patterns, few=few: by_lanes(p, bases, offsets, stop=few),  # type: ignore[misc]
            1,
            clock=time.thread_time,
        )
        scheme = index.scheme
        rows.append(
            {
                "k-mers": kmers,
                "k": k,
                "D": distance,
                "scheme": f"{'01*0' if scheme.paired else 'pigeonhole'}, {scheme.key_symbols}",
                "pieces ends/s": stop / seconds,
                "lanes ends/s": few / lanes,
                "hits": int((pieces() != NOTHING).sum()),
                "index s": built,
                "index MB": index.nbytes / 1e6,
            }
        )
    return rows


def against_sassy(total: int, kmers: int = 96, k: int = 24, distance: int = 3) -> list[Row]:
    """One thread, one strand, all ends: the hits are the same."""
    try:
        import sassy
    except ImportError:
        return [{"peer": SASSY_MISSING}]
    bases, _ = random_batch(total)
    offsets = np.array([0, total], dtype=np.int64)
    patterns = random_patterns(kmers, k, distance)
    for at in range(500, total - 2 * k, 50_000):
        # an occurrence now and then, with one symbol another
        code = int(patterns.codes[at % patterns.codes.size])
        bases[at : at + k] = [(code >> (2 * (k - 1 - i))) & 3 for i in range(k)]
        bases[at + 9] ^= 1
    text = _LETTERS[bases].tobytes()
    shifts = np.arange(2 * (k - 1), -1, -2, dtype=np.uint64)
    symbols = (patterns.codes[:, None] >> shifts) & np.uint64(3)
    kmers_as_letters = [row.tobytes() for row in _LETTERS[symbols.astype(np.intp)]]
    searcher = sassy.Searcher("dna", rc=False)

    def theirs() -> set[int]:
        return {
            match.text_end
            for pattern in kmers_as_letters
            for match in searcher.search_all(pattern, text, distance)
        }

    index = build(patterns)

    def ours() -> set[int]:
        words = by_pieces(patterns, index, bases, offsets)
        return set(unpack(words, 0, patterns).end.tolist())

    assert ours() == theirs()
    mine = least_seconds(ours, 3, clock=time.thread_time)
    peer = least_seconds(theirs, 3, clock=time.thread_time)
    return [
        {
            "k-mers": kmers, "k": k, "D": distance, "hits": len(ours()),
            "pieces ends/s": total / mine, "sassy ends/s": total / peer, "ratio": peer / mine,
        }
    ]  # fmt: skip


def growth(kmers: int = 1_000_000, k: int = 21, distance: int = 1) -> list[Row]:
    """What the next batch pays when a dictionary has grown: sets that are merged and indexed."""
    from streamer.matching.near import Options
    from streamer.matching.near.levenshtein import LevenshteinSolver
    from streamer.matching.near.near_result import Step
    from streamer.sequences.read_batch import ReadBatch

    bases, offsets = random_batch(10_000)
    batch = ReadBatch(["a"], offsets, bases)
    rng = np.random.default_rng(3)
    solver = LevenshteinSolver(
        random_patterns(kmers, k, distance).codes, k, distance, False, Options()
    )
    rows = []
    for new in (0, kmers // 100, kmers // 100, kmers // 10, kmers):
        codes = rng.integers(0, 4**k, new, dtype=np.uint64)
        began = time.thread_time()
        if new:
            solver.learn(codes)
        learnt = time.thread_time()
        solver.match(batch, Step(0, bases.size, 1))
        rows.append(
            {
                "new k-mers": new,
                "sets": len(solver.sizes()),
                "largest": max(solver.sizes()),
                "learning, s": learnt - began,
                "next 10,000 ends, s": time.thread_time() - learnt,
            }
        )
    return rows


def on_card(total: int) -> list[Row]:
    """Ends a second on the current CUDA device, the list of hits included."""
    from gpu.levenshtein import NearBuffers, launch
    from gpu.levenshtein.device_index import DeviceIndex
    from gpu.levenshtein.planes import pack_planes

    bases, offsets = random_batch(total)
    buffers = NearBuffers(total)
    buffers.upload(pack_planes(bases, offsets).planes.reshape(-1), total)
    rows: list[Row] = []
    for kmers, k, distance in DICTIONARIES:
        patterns = random_patterns(kmers, k, distance)
        index = DeviceIndex(patterns)
        seconds = median_on_card(partial(launch, index, buffers, total, 0), 5)
        number = int(buffers.found[:1].copy_to_host()[0])
        assert number < buffers.found.size, "random text has few hits"
        listed = buffers.found[1 : number + 1].copy_to_host()
        rows.append(
            {
                "k-mers": kmers, "k": k, "D": distance,
                "scheme": f"{'01*0' if index.scheme.paired else 'pigeonhole'}, "
                f"{index.scheme.key_symbols}",
                "ends/s": total / seconds,
                "hits": np.unique(listed >> np.uint64(32)).size,
                "tables MB": DeviceIndex.nbytes(patterns) / 1e6,
            }
        )  # fmt: skip
    return rows
