"""The full Levenshtein distance to a dictionary, and sassy in the same run.

Random k-mers in random text, one strand, with starts and k-mers of the hits. Rates on the CPU are
those of one thread by its own clock; on CUDA they are medians by events in GPU memory, unless a
table says otherwise.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks import peers
from benchmarks.inputs import LETTERS, Codes, batch_of, cut, random_codes, random_kmers
from benchmarks.suite import Row, Sheet
from benchmarks.timing import by_chunk, least_seconds, median_on_gpu
from trie.levenshtein import NOTHING, Patterns, unpack
from trie.levenshtein.lanes import nearest_words as by_lanes
from trie.levenshtein.piece_index import build
from trie.levenshtein.piece_index import nearest_words as by_pieces

Batch = tuple[Codes, NDArray[np.int64]]

DICTIONARIES: tuple[tuple[int, int, int], ...] = (
    (96, 24, 3),
    (96, 24, 4),
    (10_000, 21, 2),
    (10_000, 21, 3),
    (1_000_000, 21, 1),
    (1_000_000, 21, 2),
)
"""k-mers, k and D."""

ENGINES = ((1_000_000, 21, 1), (10_000, 21, 2), (96, 24, 3))
CHUNKS = ((1 << 22, 2), (1 << 24, 1), (1 << 24, 2), (1 << 25, 2))  # symbols of a chunk, and streams


def tables(device: str, bases: int = 4_000_000, kmers: int = 1_000_000) -> list[Sheet]:
    """Texts of ``bases`` bases, longer on a GPU; a growing dictionary of ``kmers`` k-mers."""
    if device == "cuda":
        return [
            Sheet("Dictionaries, data in GPU memory", on_gpu, 16 * bases),
            Sheet("From host memory, ms of each stage a chunk", engine, 128 * bases),
            Sheet("Growing", partial(growth, kmers, device="cuda", ends=bases // 4)),
            Sheet("Matching while it grows", matching, 4 * bases),
        ]
    return [
        Sheet("Against sassy, one thread", against_sassy, bases),
        Sheet("Dictionaries, one thread", dictionaries, bases),
        Sheet("Growing", growth, kmers),
    ]


def random_patterns(kmers: int, k: int, distance: int) -> Patterns:
    """Distinct random k-mers."""
    return Patterns.of(np.unique(random_kmers(kmers, k, k)), k, distance, both=False)


def random_batch(total: int) -> Batch:
    """Reads of 10,000 random bases."""
    return random_codes(total, 1), cut(total, 10_000)


def _scheme(index: Any) -> str:
    return f"{'01*0' if index.scheme.paired else 'pigeonhole'}, {index.scheme.key_symbols}"


def dictionaries(total: int) -> Iterator[Row]:
    """Ends a second of one thread, for dictionaries of several sizes."""
    bases, offsets = random_batch(total)
    for kmers, k, distance in DICTIONARIES:
        patterns = random_patterns(kmers, k, distance)
        began = time.thread_time()
        index = build(patterns)
        built = time.thread_time() - began
        stop = max(1000, total // (1 if kmers < 1_000 else 4 if distance < 3 else 16))
        few = min(stop, max(1000, 200_000_000 // (kmers * 32)))
        pieces = partial(by_pieces, patterns, index, bases, offsets, stop=stop)
        unpacked = partial(lambda run, patterns: unpack(run(), 0, patterns), pieces, patterns)
        lanes = partial(by_lanes, patterns, bases, offsets, stop=few)
        yield {
            "k-mers": kmers, "k": k, "D": distance, "scheme": _scheme(index),
            "pieces ends/s": stop / least_seconds(unpacked, 3, clock=time.thread_time),
            "lanes ends/s": few / least_seconds(lanes, 1, clock=time.thread_time),
            "hits": int((pieces() != NOTHING).sum()),
            "index s": built, "index MB": index.nbytes / 1e6,
        }  # fmt: skip


def against_sassy(total: int) -> Iterator[Row]:
    """One thread, one strand, all ends; checks that the hits are the same."""
    kmers, k, distance = DICTIONARIES[0]
    bases = random_codes(total, 1)
    offsets = np.array([0, total], dtype=np.int64)
    patterns = random_patterns(kmers, k, distance)
    shifts = np.arange(2 * (k - 1), -1, -2, dtype=np.uint64)
    symbols = ((patterns.codes[:, None] >> shifts) & np.uint64(3)).astype(np.uint8)
    for at in range(500, total - 2 * k, 50_000):
        # occurrences now and then, with one symbol changed
        bases[at : at + k] = symbols[at % len(symbols)]
        bases[at + 9] ^= 1
    text = LETTERS[bases].tobytes()
    search = peers.sassy([row.tobytes() for row in LETTERS[symbols]], text, distance)
    if search is None:
        yield {"peer": peers.missing("sassy")}
        return
    index = build(patterns)

    def ours() -> set[int]:
        words = by_pieces(patterns, index, bases, offsets)
        return set(unpack(words, 0, patterns).end.tolist())

    def theirs() -> set[int]:
        return {match.text_end for found in search() for match in found}

    assert ours() == theirs()
    mine = least_seconds(ours, 3, clock=time.thread_time)
    peer = least_seconds(theirs, 3, clock=time.thread_time)
    yield {
        "k-mers": kmers, "k": k, "D": distance, "hits": len(ours()),
        "pieces ends/s": total / mine, "sassy ends/s": total / peer, "ratio": peer / mine,
    }  # fmt: skip


def growth(kmers: int, k: int = 21, *, device: Any = "cpu", ends: int = 10_000) -> Iterator[Row]:
    """The cost of growth for the next batch: sets are merged and indexed."""
    from streamer.device_choice import GpuOrCpu
    from streamer.matching.near import LevenshteinSolver, Step
    from streamer.matching.spec import MatchSpec

    clock = time.thread_time if device == "cpu" else time.perf_counter
    batch = batch_of(*random_batch(ends))
    codes = random_patterns(kmers, k, 1).codes
    spec = MatchSpec(k=k, distance=1, strands="forward", device=device, cards=(0,))
    solver = LevenshteinSolver(codes, spec, GpuOrCpu(None), threads=1)
    if device == "cuda":
        solver.match(batch, Step(0, ends, 1))  # compiles
    for seed, new in enumerate((0, kmers // 100, kmers // 100, kmers // 10, kmers)):
        codes = random_kmers(new, k, 100 + seed)
        began = clock()
        if new:
            solver.learn(codes)
        learnt = clock()
        solver.match(batch, Step(0, ends, 1))
        yield {
            "new k-mers": new, "sets": len(solver.sizes()), "largest": max(solver.sizes()),
            "learning, s": learnt - began, f"next {ends:,} ends, s": clock() - learnt,
        }  # fmt: skip


def on_gpu(total: int) -> Iterator[Row]:
    """Ends a second, with a list of hits or with a word for every end."""
    from gpu.levenshtein import DeviceIndex, NearBuffers, launch
    from gpu.levenshtein.search import PLANES, packing, plane_words

    planes = np.empty(PLANES * plane_words(total), dtype=np.uint32)
    for part in packing(*random_batch(total), 0, total, planes):
        part()
    buffers = NearBuffers(total)
    buffers.upload(planes, total)
    for kmers, k, distance in DICTIONARIES:
        patterns = random_patterns(kmers, k, distance)
        index = DeviceIndex(patterns)
        run = partial(launch, index, buffers, total, 0)
        words = median_on_gpu(partial(run, all_words=True), 5)
        seconds = median_on_gpu(run, 5)
        number = int(buffers.found[:1].copy_to_host()[0])
        assert number < buffers.found.size, "random text has few hits"
        listed = buffers.found[1 : number + 1].copy_to_host()
        yield {
            "k-mers": kmers, "k": k, "D": distance, "scheme": _scheme(index),
            "ends/s": total / seconds, "words of all, ends/s": total / words,
            "hits": np.unique(listed >> np.uint64(32)).size,
            "tables MB": DeviceIndex.nbytes(patterns) / 1e6,
        }  # fmt: skip


def engine(total: int) -> Iterator[Row]:
    """From host memory to host results, by chunk and streams."""
    from gpu.levenshtein import NearEngine

    bases, offsets = random_batch(total)
    for kmers, k, distance in ENGINES:
        patterns = random_patterns(kmers, k, distance)

        def match(engine: Any, patterns: Patterns = patterns) -> None:
            for _ in engine.match(list, [patterns], bases, offsets, 0, total):
                pass

        for row in by_chunk(partial(NearEngine, k, distance), match, total, CHUNKS):
            yield {"k-mers": kmers, "k": k, "D": distance} | row


def matching(total: int) -> Iterator[Row]:
    """The whole matcher while nearly every window is new, then again over the same bases; D = 1."""
    from streamer.dictionary.targets import Dictionary
    from streamer.matching.matcher import StreamMatcher

    batch = batch_of(*random_batch(total))
    first = batch_of(random_codes(1 << 16, 2), np.array([0, 1 << 16]))
    for chunk in (1 << 16, 1 << 20, 1 << 23):
        matcher = StreamMatcher.of(
            Dictionary.empty(21, "forward"), mode="grow", chunk=chunk, device="cuda",
            exact=False, distance=1,
        )  # fmt: skip
        with closing(matcher):
            matcher.match([first])
            run = partial(matcher.match, [batch])
            growing = least_seconds(run, 1, warm=False)
            saturated = least_seconds(run, 1, warm=False)
            yield {
                "chunk": chunk, "k-mers": matcher.kmers, "bases/s": total / growing,
                "saturated bases/s": total / saturated,
            }  # fmt: skip
