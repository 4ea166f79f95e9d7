"""The same work on one GPU and on several, in turns: ``scripts/bench NAME --gpus 1,2``.

Wall time from host memory to columns or results there, as in the commands and the daemon, without
reading files or writing rows. A ratio is the median over pairs of measurements: seconds with the
first number of GPUs divided by the seconds with another number right after it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing
from functools import partial
from typing import Any

import numpy as np

from benchmarks.daemon import daemon
from benchmarks.inputs import LETTERS, Codes, batch_of, half_hit, random_codes, random_letters
from benchmarks.primer import SIZE, TABLE_5, Size
from benchmarks.suite import Row, Sheet
from streamer.batch import asm, hamming, primer
from streamer.batch.asm.blocks import of_pieces
from streamer.batch.asm.pattern_masks import masks_of, searches
from streamer.batch.choice import Choice
from streamer.batch.primer.problem import Alpha
from streamer.batch.records import NamedSequence
from streamer.device_choice import usable_cards
from streamer.dictionary.targets import Dictionary
from streamer.errors import StreamerError, UsageError
from streamer.matching.matcher import StreamMatcher
from streamer.sequences.record_buffer import TextPiece
from trie.cpu.threads import usable_cores
from trie.trees.hybrid_tree import snapshot

PIECE = 1 << 24  # symbols of a piece of text, as the commands read them
CHUNK = 1 << 24
K = 15
NEAR_K, DISTANCES = 21, (2, 3)  # of matching within a distance

ASM_CASES = ((1, 16, 2, 1), (96, 24, 3, 1), (960, 24, 3, 1), (960, 24, 3, 4))
"""Patterns, their length, k, and by how much the text is longer."""

HAMMING_CASES = ((8, 20, 4), (96, 24, 3), (2048, 24, 3), (2048, 64, 5))
PRIMER_CASES = (
    SIZE, TABLE_5, Size(200_000, 10_000_000, 8),
    *(Size(29_903, n, 6) for n in (100_000_000, 1_000_000_000)),
)  # fmt: skip

Run = Callable[[], object]


def tables(
    device: str, job: str, gpus: Sequence[int], pairs: int = 5, scale: float = 1.0
) -> list[Sheet]:
    """The tables of a job on these numbers of GPUs, one for each case."""
    shown = ",".join(map(str, gpus))
    if device != "cuda":
        raise UsageError(f"--gpus {shown} needs --device cuda")
    cards = usable_cards()
    if max(gpus) > len(cards):
        raise StreamerError(f"--gpus {shown}: there are {len(cards)}")
    uses = {count: tuple(cards[:count]) for count in gpus}
    size = int(scale * (1 << 28))
    title = f"{job}, on {shown} GPUs"
    if job == "asm":
        return [Sheet(title, asm_texts, uses, pairs, size, (case,)) for case in ASM_CASES]
    if job == "hamming":
        return [Sheet(title, hamming_texts, uses, pairs, size, (case,)) for case in HAMMING_CASES]
    if job == "primer":
        return [Sheet(title, primer_sizes, uses, pairs, (case,)) for case in PRIMER_CASES]
    if job == "exact":
        engines = [Sheet(title, exact_engine, uses, pairs, 2 * size, n * CHUNK) for n in (1, 2)]
        return [*engines, Sheet(f"StreamMatcher, on {shown} GPUs", matchers, uses, pairs, size)]
    return [Sheet(title, daemon_feed, uses, min(pairs, 3), 8 * size)]


def in_pairs(runs: dict[int, Run], pairs: int) -> Row:
    """The median seconds with each number of GPUs, and the ratios of the first to the others."""
    for run in runs.values():
        run()  # compiles
    seconds: dict[int, list[float]] = {count: [] for count in runs}
    for _ in range(pairs):
        for count, run in runs.items():
            begin = time.perf_counter()
            run()
            seconds[count].append(max(time.perf_counter() - begin, 1e-9))
    return _compared(seconds)


def _compared(seconds: dict[int, list[float]]) -> Row:
    row: Row = {f"{count} GPU, s": float(np.median(took)) for count, took in seconds.items()}
    first, *others = seconds
    for count in others:
        ratios = np.divide(seconds[first], seconds[count])
        row[f"ratio {first}:{count}"] = float(np.median(ratios))
        row["least"], row["most"] = float(ratios.min()), float(ratios.max())
    return row


def _pieces(size: int) -> list[TextPiece]:
    """Random texts of PIECE symbols, a record each."""
    codes = random_codes(size, 20)
    parts = [codes[first : first + PIECE] for first in range(0, size, PIECE)]
    return [
        TextPiece(batch_of(part, np.array([0, part.size])), first=number)
        for number, part in enumerate(parts)
    ]


def asm_texts(
    uses: dict[int, tuple[int, ...]],
    pairs: int,
    size: int,
    cases: Iterable[tuple[int, int, int, int]],
) -> Iterator[Row]:
    """``asm``, both strands, every end."""
    for count, length, k, longer in cases:
        pieces = _pieces(longer * size)
        patterns = [random_letters(length, 30 + number).tobytes() for number in range(count)]
        wanted = searches([masks_of(one) for one in patterns], k, "both")

        def run(cards: tuple[int, ...], pieces: Any = pieces, wanted: Any = wanted) -> int:
            choice = Choice("bit-parallel", "cuda", cards=cards)
            return sum(len(hits) for _, hits in asm.find(of_pieces(pieces), wanted, choice))

        row: Row = {"symbols": longer * size, "patterns": count, "m": length, "k": k}
        yield row | in_pairs({n: partial(run, cards) for n, cards in uses.items()}, pairs)


def hamming_texts(
    uses: dict[int, tuple[int, ...]], pairs: int, size: int, cases: Iterable[tuple[int, int, int]]
) -> Iterator[Row]:
    """``hamming``, both strands; patterns are prepared before."""
    texts = list(map(hamming.SearchedText.of, _pieces(size)))
    for count, length, k in cases:
        patterns = [NamedSequence(str(i), random_codes(length, 30 + i)) for i in range(count)]

        def run(search: hamming.HammingSearch) -> int:
            return sum(len(hits) for _, hits in search.find(texts))

        runs: dict[int, Run] = {}
        for number, cards in uses.items():
            choice = Choice("bit-sliced", "cuda", cards=cards)
            runs[number] = partial(
                run, hamming.HammingSearch(patterns, k, choice=choice, free=True)
            )
        row: Row = {"symbols": size, "patterns": count, "m": length, "k": k}
        yield row | in_pairs(runs, pairs)


def primer_sizes(
    uses: dict[int, tuple[int, ...]], pairs: int, cases: Iterable[Size]
) -> Iterator[Row]:
    """``primer``, both strands."""
    for size in cases:
        alpha, beta = size.sequences()

        def run(cards: tuple[int, ...], alpha: Codes = alpha, beta: Codes = beta, k: int = size.k):  # type: ignore[no-untyped-def]
            choice = Choice("seeds", "cuda", cards=cards)
            return primer.reaches(Alpha.of([alpha]), [beta], k, choice, strands="both")

        row: Row = {"alpha": size.m, "beta": size.n, "k": size.k}
        yield row | in_pairs({n: partial(run, cards) for n, cards in uses.items()}, pairs)


def exact_engine(
    uses: dict[int, tuple[int, ...]], pairs: int, total: int, chunk: int
) -> Iterator[Row]:
    """The engine of a frozen dictionary, by the form of chunks and results."""
    from benchmarks.exact_on_gpu import kmers_of, ways_in
    from gpu.exact import Pipeline

    k, threads = K, usable_cores()
    text = random_codes(min(10_000_000, total), 1)
    tree = snapshot(kmers_of(text, k, canonical=True), k)
    batch = half_hit(text, total, 11)
    with ExitStack() as stack:
        ways: dict[int, dict[str, Run]] = {}
        for count, cards in uses.items():
            engine = Pipeline(k, "canonical", chunk=chunk, threads=threads, cards=cards)
            stack.enter_context(closing(engine))
            ways[count] = ways_in(engine, batch, k, chunk, tree)
        for what in next(iter(ways.values())):
            row: Row = {"in and out": what, "bases": total, "chunk": chunk}
            yield row | in_pairs({n: runs[what] for n, runs in ways.items()}, pairs)


def matchers(uses: dict[int, tuple[int, ...]], pairs: int, total: int) -> Iterator[Row]:
    """Batches against a frozen dictionary, exactly and within a distance, and a growing dictionary.

    For exact matching, batches are packed before the time is taken. The batch that is matched
    within a distance is a byte per base, and not matched exactly too. The growing dictionary only
    uses the first GPU.
    """
    k = K
    text, offsets = _one_read(min(total, 1_000_000))
    known = Dictionary.from_batches([batch_of(text, offsets)], k, "canonical")
    with ExitStack() as stack:
        runs: dict[int, Run] = {}
        batches: list[Any] = []
        for count, cards in uses.items():
            matcher = StreamMatcher.of(known, device="cuda", cards=cards)
            stack.enter_context(closing(matcher))
            for number in range(0 if batches else max(1, total // CHUNK)):
                reads = half_hit(text, min(total, CHUNK), number)
                batches.append(matcher.make_batch(reads.names, reads.offsets, LETTERS[reads.bases]))
            runs[count] = partial(matcher.match, batches)
        row: Row = {"what": "frozen, packed before", "bases": total, "k": k}
        yield row | in_pairs(runs, pairs)
    unlike = batch_of(*_one_read(total, 5))
    known = Dictionary.from_batches([batch_of(text, offsets)], NEAR_K, "both")
    for distance in DISTANCES:
        with ExitStack() as stack:
            runs = {}
            for count, cards in uses.items():
                matcher = StreamMatcher.of(
                    known, distance=distance, exact=False, device="cuda", cards=cards
                )
                stack.enter_context(closing(matcher))
                runs[count] = partial(matcher.match, [unlike])
            row = {"what": f"frozen, distance {distance}", "bases": total, "k": NEAR_K}
            yield row | in_pairs(runs, pairs)

    def grow(cards: tuple[int, ...]) -> None:
        nothing = Dictionary.empty(k, "canonical")
        matcher = StreamMatcher.of(nothing, mode="grow", device="cuda", cards=cards)
        with closing(matcher):
            matcher.match([unlike])

    runs = {count: partial(grow, cards) for count, cards in uses.items()}
    yield {"what": "growing", "bases": total, "k": k} | in_pairs(runs, pairs)


def _one_read(total: int, seed: int = 1) -> tuple[Codes, Any]:
    return random_codes(total, seed), np.array([0, total])


def daemon_feed(uses: dict[int, tuple[int, ...]], pairs: int, bases: int) -> Iterator[Row]:
    """The daemon from socket to feed, a new daemon each time; seconds of the stream."""
    seconds: dict[int, list[float]] = {count: [] for count in uses}
    for _ in range(pairs):
        for count in uses:
            (row,) = daemon(
                "cuda", 21, 4, bases, batch_bytes=(1 << 22,), transports=("ipc",), gpus=count
            )
            seconds[count].append(row["s"])
    yield {"bases": bases} | _compared(seconds)
