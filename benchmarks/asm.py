"""Approximate string matching: the WsPASM paper's table and figures, and the peers.

Texts are random ACGT (the paper's packets are not published). Every timing includes the positions
and distances of all hits: as columns in the paper's tables, which start from codes, and as rows in
comparisons with peers.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import numpy as np

from benchmarks import peers
from benchmarks.inputs import Codes, random_codes, random_letters
from benchmarks.suite import Row, Sheet
from benchmarks.timing import in_turns, least_and_result, least_seconds, median_on_gpu
from streamer.batch.asm import METHODS, find, search
from streamer.batch.asm.blocks import Texts
from streamer.batch.asm.pattern_masks import masks_of, searches
from streamer.batch.choice import Choice, Device
from trie.cpu.threads import usable_cores

SEED = 20
K = 6
TABLE_1 = {
    3.14: (0.025, 1.59, 1.83, 1.94),
    4.87: (0.026, 1.58, 1.84, 1.95),
    7.74: (0.025, 1.52, 1.87, 1.99),
    12.88: (0.026, 1.61, 1.87, 1.98),
    17.56: (0.026, 1.59, 1.84, 1.97),
    22.87: (0.026, 1.57, 1.84, 1.99),
}
"""Gb/s of the paper's Table 1 by input size: ASM_CPU, PASM, WsPASM, WsPASM shared (GTX 660)."""

PAPERS = ("sequential", "pasm", "wspasm", "wspasm-shared")
SLOW_PART = 2_000_000  # symbols for the CPU's slow methods in tables of a GPU
FIGURE_LENGTHS = (8, 16, 32, 64)
PEER_CASES = ((16, 2), (16, 5), (16, 6), (20, 4), (24, 3), (32, 3), (32, 6), (48, 6), (64, 6))
STEP_CASES = ((16, 6), (16, 2), (24, 3), (32, 6), (8, 1), (64, 6))  # length of the pattern, and k
ON_GPU = (1 << 32) - (1 << 22)  # symbols in GPU memory for the measurement of steps
ALL = 1 << 40  # a limit on hits that is never reached


def tables(device: str, scale: float = 1.0) -> list[Sheet]:
    """The paper's tables, and those with peers on the CPU or those of each step on a GPU."""
    on_gpu = device == "cuda"
    paper = [
        Sheet("Table 1", table_1, on_gpu, scale),
        Sheet("Figures 6 and 7", figures_6_7, on_gpu, scale),
    ]
    many = ((24, 3),), 96
    if on_gpu:
        title = "Steps, packed text in GPU memory, symbols x patterns/s"
        return [
            *paper,
            Sheet(title, steps, int(ON_GPU * scale)),
            Sheet("The same with 96 patterns", steps, int(scale * (1 << 24)), *many),
            Sheet("From host memory", from_host, scale),
        ]
    return [
        *paper,
        Sheet("Against peers, one pattern", beside_peers, int(64_000_000 * scale)),
        Sheet("Against peers, 96 patterns", beside_peers, int(4_000_000 * scale), *many, 3),
    ]


def _pattern(length: int, number: int = 0) -> bytes:
    return random_letters(length, SEED + 1 + length + 1000 * number).tobytes()


def _search(codes: Codes, pattern: bytes, method: str, device: Device) -> int:
    """The number of hits; their columns are made and dropped."""
    wanted = searches([masks_of(pattern)], K, "forward")
    text = Texts(codes, np.array([0, codes.size]))
    return sum(len(hits) for _, hits in find([text], wanted, Choice(method, device), threads=1))


def _times(
    codes: Codes, length: int, on_gpu: bool, repeats: int
) -> Iterator[tuple[str, str, float, int | None]]:
    """Every method, where it runs, its seconds and hits for one pattern.

    Where: ``cpu``, one thread by its own time; ``cuda``, from host memory to host memory; ``card``,
    from a text in GPU memory to hits there. In tables of a GPU, the CPU's slow methods get the
    first SLOW_PART symbols.
    """
    pattern = _pattern(length)
    for method, devices in METHODS.items():
        if "cpu" in devices:
            part = codes[:SLOW_PART] if on_gpu and method != "bit-parallel" else codes
            run = partial(_search, part, pattern, method, "cpu")
            seconds, hits = least_and_result(run, repeats, clock=time.thread_time)
            share = codes.size / part.size
            yield method, "cpu", seconds * share, hits if share == 1 else None
        if on_gpu and "cuda" in devices:
            run = partial(_search, codes, pattern, method, "cuda")
            yield method, "cuda", *least_and_result(run, repeats)
            yield method, "card", *least_and_result(_on_gpu(codes, pattern, method), repeats)


def _on_gpu(codes: Codes, pattern: bytes, method: str) -> Callable[[], int]:
    from gpu.asm import Searcher

    searcher = Searcher([masks_of(pattern)], K, method)
    text = searcher.upload(codes)
    return lambda: sum(hits.total for _, hits in searcher.batches(text, codes.size, 0, ALL))


def table_1(on_gpu: bool, scale: float, repeats: int = 3) -> Iterator[Row]:
    """The paper's Table 1: one pattern of 16, k = 6. ``scale`` shrinks the texts."""
    for megabytes, paper in TABLE_1.items():
        codes = random_codes(int(megabytes * 1e6 * scale), SEED)
        base = None
        for method, where, seconds, hits in _times(codes, 16, on_gpu, repeats):
            base = base or seconds
            theirs = paper[PAPERS.index(method)] if method in PAPERS else None
            yield {
                "MB": megabytes * scale, "hits": hits, "method": method, "device": where,
                "Gbit/s": 8 * codes.size / seconds / 1e9, "x sequential": base / seconds,
                "paper Gb/s": theirs, "paper x": theirs / paper[0] if theirs else None,
            }  # fmt: skip


def figures_6_7(on_gpu: bool, scale: float) -> Iterator[Row]:
    """Figures 6 and 7: seconds by pattern length, k = 6, the largest text of Table 1."""
    codes = random_codes(int(22.87e6 * scale), SEED)
    for length in FIGURE_LENGTHS:
        base = None
        for method, where, seconds, _ in _times(codes, length, on_gpu, 2):
            base = base or seconds
            yield {
                "m": length, "method": method, "device": where, "seconds": seconds,
                "x sequential": base / seconds,
            }  # fmt: skip


def beside_peers(
    size: int,
    cases: Sequence[tuple[int, int]] = PEER_CASES,
    count: int = 1,
    repeats: int = 5,
) -> Iterator[Row]:
    """Patterns on the forward strand, all hits, from letters in memory to rows: GB/s of wall time.

    sassy makes an object of every hit, so it gets less text if hits or patterns are many. edlib and
    hyperscan get a hundredth of the text.
    """
    text = random_letters(size, SEED).tobytes()
    cores = usable_cores()
    for length, k in cases:
        patterns = [_pattern(length, i) for i in range(count)]
        ours = partial(search, text, patterns, k, strands="forward", device="cpu")
        density = ours(threads=cores).size / size
        part = text[: size // (16 if density > 1e-3 or count > 1 else 1)]
        little = text[: size // 100]
        runs = {
            "1 thread": (size, partial(ours, threads=1)),
            f"{cores} threads": (size, partial(ours, threads=cores)),
            "sassy": (len(part), peers.sassy(patterns, part, k)),
            "edlib": (len(little), peers.edlib(patterns, little, k)),
            "hyperscan": (len(little), peers.hyperscan(patterns, little, edit_distance=k)[0]),
        }
        seconds = in_turns({name: run for name, (_, run) in runs.items() if run}, repeats)
        rates = {name: runs[name][0] / took / 1e9 for name, took in seconds.items()}
        row: Row = {"m": length, "k": k, "patterns": count, "hits": density}
        row |= {name: rates.get(name) for name in runs}
        for name in ("sassy", "edlib", "hyperscan"):
            row[f"x {name}"] = rates["1 thread"] / rates[name] if name in rates else None
        yield row


def steps(
    size: int, cases: Sequence[tuple[int, int]] = STEP_CASES, count: int = 1
) -> Iterator[Row]:
    """Times of ``bit-parallel`` on packed text: slicing the text, scanning and listing, both."""
    codes = np.resize(random_codes(min(size, 1 << 26), SEED), size)
    for length, k in cases:
        yield {"m": length, "k": k, "patterns": count} | _steps(codes, length, k, count)


def _steps(codes: Codes, length: int, k: int, count: int) -> Row:
    from gpu.asm import Searcher
    from gpu.asm.bit_parallel import Listed, SlicedPatterns, SlicedText, scan
    from gpu.card.memory import Workspace

    masks = [masks_of(_pattern(length, i)) for i in range(count)]
    packed = Searcher(masks, k, "bit-parallel").upload(codes)
    patterns, space = SlicedPatterns(masks), Workspace()

    def sliced() -> SlicedText:
        return SlicedText(packed, codes.size, length + k, count, space)

    def listed(text: SlicedText) -> Listed:
        return scan(text, patterns, k, ALL, 0, space)

    text = sliced()
    row: Row = {"hits": listed(text).total / codes.size}
    seconds = {
        "slice": median_on_gpu(sliced, 3),
        "scan and list": least_seconds(lambda: listed(text), 9),
        "all": least_seconds(lambda: listed(sliced()), 9),
    }
    return row | {name: codes.size * count / took for name, took in seconds.items()}


def from_host(scale: float) -> Iterator[Row]:
    """From host memory to host memory: codes to columns, and letters to rows."""
    from gpu.asm import Searcher

    codes = random_codes(int(scale * (1 << 28)), SEED)
    letters = random_letters(int(scale * (1 << 26)), SEED)
    for k in (2, 6):
        searcher = Searcher([masks_of(_pattern(16))], k, "bit-parallel")
        for size in (int(22_870_000 * scale), codes.size):
            seconds = least_seconds(partial(searcher.search, codes[:size], 0, ALL), 5)
            yield {"m": 16, "k": k, "from": "codes", "symbols": size, "symbols/s": size / seconds}
        run = partial(search, letters, _pattern(16), k, strands="forward", device="cuda")
        rate = letters.size / least_seconds(run, 3)
        yield {"m": 16, "k": k, "from": "letters", "symbols": letters.size, "symbols/s": rate}
