"""Measurements of approximate pattern search: the paper's table and figures, and the peers.

Every function returns plain rows and prints nothing. Texts are random ACGT from a fixed seed (the
packets of the WsPASM paper are not to be had); rates are of the best of several runs after one that
compiles. Positions and distances of all hits are part of every timing of ours: as columns in the
paper's tables, which begin with codes, as rows beside the peers.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamer.batch.asm import METHODS, find, search
from streamer.batch.asm.patterns import masks_of, searches
from streamer.batch.choice import Choice, Device
from streamer.bench.timing import least_and_result
from streamer.sequences.read_batch import ReadBatch
from streamer.sequences.record_buffer import TextPiece
from trie.cpu.threads import usable_cores

Row = dict[str, Any]

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
SLOW_PART = 2_000_000
"""Symbols for the slow methods of the CPU where the card is what is asked for."""

FIGURE_LENGTHS = (8, 16, 32, 64)

PEER_CASES = ((16, 2), (16, 5), (16, 6), (20, 4), (24, 3), (32, 3), (32, 6), (48, 6), (64, 6))

_LETTERS = np.frombuffer(b"ACGT", dtype=np.uint8)


def random_codes(size: int, seed: int = SEED) -> NDArray[np.uint8]:
    """Random base codes."""
    return np.random.default_rng(seed).integers(0, 4, size, dtype=np.uint8)


def _pattern(length: int, number: int = 0) -> bytes:
    return _LETTERS[random_codes(length, SEED + 1 + length + 1000 * number)].tobytes()


def _search(
    codes: NDArray[np.uint8],
    patterns: Sequence[bytes],
    k: int,
    method: str,
    device: Device,
    threads: int,
) -> int:
    """How many hits there are; their columns are made and dropped."""
    wanted = searches([masks_of(pattern) for pattern in patterns], k, "forward")
    batch = ReadBatch(["text"], np.array([0, codes.size]), codes)
    choice = Choice(method, device)
    return sum(len(hits) for hits in find([TextPiece(batch)], wanted, choice, threads=threads))


class Where(NamedTuple):
    """A method and where it runs: ``cpu``; ``cuda`` (host to host); ``card`` (all stays there)."""

    method: str
    where: str


def _places(cuda: bool) -> list[Where]:
    places = []
    for method, devices in METHODS.items():
        places += [Where(method, device) for device in devices if device == "cpu" or cuda]
        places += [Where(method, "card")] * (cuda and "cuda" in devices)
    return places


def _measured(
    place: Where, codes: NDArray[np.uint8], pattern: bytes, repeats: int, *, cuda: bool
) -> tuple[float, int | None]:
    """Seconds of a search with K, and its hits.

    On the CPU the time of one thread; beside a GPU (``cuda``) the slow methods get the first
    SLOW_PART symbols, and the seconds are scaled.
    """
    method, where = place
    if where == "card":
        from gpu.asm import Searcher

        searcher = Searcher([masks_of(pattern)], K, method)
        text = searcher.upload(codes)

        def search() -> int:
            hits = searcher.batches(text, codes.size, 0, 1 << 40)
            return sum(found.total for _, found in hits)

        return least_and_result(search, repeats)
    if where == "cuda":
        return least_and_result(partial(_search, codes, [pattern], K, method, "cuda", 1), repeats)
    slow = cuda and method != "bit-parallel"
    part = codes[:SLOW_PART] if slow else codes
    search_part = partial(_search, part, [pattern], K, method, "cpu", 1)
    seconds, hits = least_and_result(search_part, repeats, clock=time.thread_time)
    return seconds * codes.size / part.size, hits if part.size == codes.size else None


def table_1(*, cuda: bool = False, scale: float = 1.0, repeats: int = 3) -> list[Row]:
    """The paper's Table 1: one pattern of 16, k = 6, one thread of the CPU; from codes in memory.

    With ``cuda`` also from the host's memory to the host's, and from a text on the GPU (packed for
    bit-parallel, else codes) to hits on the GPU. ``scale`` shrinks the texts.
    """
    rows = []
    for megabytes, paper in TABLE_1.items():
        codes = random_codes(int(megabytes * 1e6 * scale))
        base = None
        for place in _places(cuda):
            method, where = place
            seconds, hits = _measured(place, codes, _pattern(16), repeats, cuda=cuda)
            base = base or seconds
            theirs = paper[PAPERS.index(method)] if method in PAPERS else None
            rows.append(
                {
                    "MB": megabytes * scale,
                    "hits": hits,
                    "method": method,
                    "device": where,
                    "Gbit/s": 8 * codes.size / seconds / 1e9,
                    "x sequential": base / seconds,
                    "paper Gb/s": theirs,
                    "paper x": theirs / paper[0] if theirs else None,
                }
            )
    return rows


def figures_6_7(*, cuda: bool = False, scale: float = 1.0, repeats: int = 2) -> list[Row]:
    """Figures 6 and 7: seconds by pattern length, k = 6, the largest text of Table 1."""
    codes = random_codes(int(22.87e6 * scale))
    rows = []
    for length in FIGURE_LENGTHS:
        base = None
        for place in _places(cuda):
            method, where = place
            seconds, _ = _measured(place, codes, _pattern(length), repeats, cuda=cuda)
            base = base or seconds
            rows.append(
                {
                    "m": length,
                    "method": method,
                    "device": where,
                    "seconds": seconds,
                    "x sequential": base / seconds,
                }
            )
    return rows


def peers(
    size: int = 64_000_000, repeats: int = 5, cases: Sequence[tuple[int, int]] = PEER_CASES
) -> list[Row]:
    """One pattern, forward, all hits, from letters in memory to rows: GB/s of wall time.

    Everything takes turns, so that what else the machine does meets all alike. sassy ``search_all``
    makes an object of every hit. edlib (mode HW) tells the best distance only; hyperscan reports
    ends without distances and refuses what it cannot do; both are given a hundredth of the text.
    """
    text = _LETTERS[random_codes(size)].tobytes()
    return [_peer_row(length, k, 1, text, repeats) for length, k in cases]


def many(
    size: int = 4_000_000, count: int = 96, length: int = 24, k: int = 3, repeats: int = 3
) -> list[Row]:
    """Many patterns over one text, as above."""
    return [_peer_row(length, k, count, _LETTERS[random_codes(size)].tobytes(), repeats)]


def _peer_row(length: int, k: int, count: int, text: bytes, repeats: int) -> Row:
    patterns = [_pattern(length, i) for i in range(count)]

    def ours(threads: int) -> Callable[[], int]:
        return lambda: (
            search(text, patterns, k, strands="forward", device="cpu", threads=threads).size
        )

    density = ours(usable_cores())() / len(text)
    # a peer that makes an object a hit is given less where they are many
    part = text[: len(text) // (16 if density > 1e-3 or count > 1 else 1)]
    cores = usable_cores()
    runs = {
        "1 thread": (ours(1), len(text)),
        f"{cores} threads": (ours(cores), len(text)),
        "sassy": (_sassy(patterns, part, k), len(part)),
        "edlib": (_edlib(patterns, text[: len(text) // 100], k), len(text) // 100),
        "hyperscan": (_hyperscan(patterns, text[: len(text) // 100], k), len(text) // 100),
    }
    rates = {
        name: size / seconds / 1e9
        for (name, (_, size)), seconds in zip(
            runs.items(), _in_turns([run for run, _ in runs.values()], repeats), strict=True
        )
        if seconds
    }
    row: Row = {"m": length, "k": k, "patterns": count, "hits": density}
    for name in runs:
        row[name] = rates.get(name)
    for name in ("sassy", "edlib", "hyperscan"):
        row[f"x {name}"] = rates["1 thread"] / rates[name] if name in rates else None
    return row


def _in_turns(runs: Sequence[Callable[[], Any] | None], repeats: int) -> list[float | None]:
    """The least wall time of each that there is."""
    least: list[float | None] = [None] * len(runs)
    for _ in range(repeats):
        for i, run in enumerate(runs):
            if run is not None:
                begin = time.perf_counter()
                run()
                seconds = time.perf_counter() - begin
                least[i] = min(least[i] or seconds, seconds)
    return least


def _sassy(patterns: Sequence[bytes], text: bytes, k: int) -> Callable[[], Any] | None:
    try:
        import sassy
    except ImportError:
        return None
    searcher = sassy.Searcher("dna", rc=False)
    return lambda: [len(searcher.search_all(pattern, text, k)) for pattern in patterns]


def _edlib(patterns: Sequence[bytes], text: bytes, k: int) -> Callable[[], Any] | None:
    try:
        import edlib
    except ImportError:
        return None
    return lambda: [edlib.align(p, text, mode="HW", task="distance", k=k) for p in patterns]


def _hyperscan(patterns: Sequence[bytes], text: bytes, k: int) -> Callable[[], Any] | None:
    try:
        hyperscan: Any = importlib.import_module("hyperscan")
    except ImportError:
        return None
    edits = hyperscan.ExpressionExt(flags=hyperscan.HS_EXT_FLAG_EDIT_DISTANCE, edit_distance=k)
    database = hyperscan.Database()
    try:
        database.compile(
            expressions=list(patterns),
            ids=list(range(len(patterns))),
            elements=len(patterns),
            flags=[0] * len(patterns),
            ext=[edits] * len(patterns),
        )
    except hyperscan.error:
        return None
    ends: list[int] = []

    def scan() -> None:
        ends.clear()
        database.scan(text, match_event_handler=lambda i, start, end, flags, _: ends.append(end))

    return scan
