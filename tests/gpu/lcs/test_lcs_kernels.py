"""Kernels of the longest common subsequence against its definition."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

import gpu.lcs
from gpu.lcs import LcsGpu, paper
from gpu.lcs import systolic as prepare
from gpu.lcs.systolic import GridShape
from streamer.batch import choice, lcs
from streamer.batch.lcs import paper as processor
from streamer.batch.lcs import solve
from streamer.batch.lcs.passes import Passes, Splits, best_cut, stride_of
from tests.gpu import placement
from tests.gpu.placement import SIMULATED
from tests.reference import lcs as oracle

pytestmark = placement.marks()


@pytest.fixture(scope="module", autouse=True)
def small_kernels():
    """Blocks, steps and strips that the simulator can carry."""
    with placement.small_blocks(32, prepare) as patch:
        if SIMULATED:
            patch.setattr(paper, "STEP", 32)
            patch.setattr(processor, "GPU_FROM", 300)
            patch.setattr(gpu.lcs, "shape_for", lambda symbols, passes: GridShape(1, symbols, 1))
            patch.setattr(gpu.lcs, "_multiprocessors", lambda: 1)
        yield patch


def codes(rng, count, symbols=4):
    return rng.integers(0, symbols, count).astype(np.uint8)


def growth(a, b):
    """By the definition: a bit a row of a, set where the length grows with all of b."""
    row = np.zeros(b.size + 1, dtype=np.int64)
    lengths = [0]
    for symbol in a:
        below = row.copy()
        grown = below[:-1] + (b == symbol)
        row[1:] = np.maximum.accumulate(np.maximum(grown, below[1:]))
        lengths.append(row[-1])
    return np.diff(lengths)


def bits(words, count):
    return np.unpackbits(np.ascontiguousarray(words).view(np.uint8), bitorder="little")[:count]


CASES = (
    [
        (1, 1, 4, None), (31, 33, 4, None), (40, 64, 1, None), (1_023, 90, 4, None),
        (1_025, 65, 4, None), (1_100, 31, 20, None), (100, 33, 200, None), (5_300, 33, 4, 5),
    ]
    if SIMULATED
    else [
        (m, n, symbols, words)
        for m, n in [
            *product((1, 33, 1_023, 4_097), (1, 31, 32, 33, 1_025, 5_000)),
            *product((20_000,), (33, 1_025)),
        ]
        for symbols, words in ((1, None), (4, None), (4, 10), (20, None), (200, None))
    ]
)  # fmt: skip
"""Rows, columns, symbols, words of a lane (None: as the shape is chosen)."""


@pytest.mark.parametrize(("rows", "columns", "symbols", "words"), CASES)
def test_passes_in_both_directions_and_every_mark(rows, columns, symbols, words):
    rng = np.random.default_rng(rows + columns)
    a, b = codes(rng, rows + 50, symbols), codes(rng, columns + 45, symbols)
    row, column = 37, 41
    marks = np.array([[columns, columns // 2, columns // 4 if columns > 8 else 0]] * 2)
    stride = stride_of(np.array([rows, rows]))
    passes = Passes(
        row=np.array([row, row]), rows=np.array([rows, rows]), column=np.array([column, column]),
        columns=np.array([columns, columns]), backward=np.array([False, True]), marks=marks,
        at=np.array([0, 3 * stride[0]]), stride=stride,
    )  # fmt: skip
    shape = words and GridShape(words, symbols, 1)
    card = LcsGpu(a, b, symbols, max(1, (symbols - 1).bit_length()), shape)
    card.reserve(int(6 * stride[0]))
    card.sweep(passes)
    pool = card.pool.copy_to_host()
    part_a, part_b = a[row : row + rows], b[column : column + columns]
    for i, (x, y) in enumerate(((part_a, part_b), (part_a[::-1], part_b[::-1]))):
        for number, mark in enumerate(marks[i]):
            if mark:
                at = int(passes.at[i] + number * stride[i])
                np.testing.assert_array_equal(
                    bits(pool[at : at + stride[i]], rows), growth(x, y[:mark]), err_msg=str(mark)
                )


@pytest.mark.parametrize("rows", [1, 31, 32, 33, 1_000])
def test_cuts(rows):
    rng = np.random.default_rng(rows)
    card = LcsGpu(codes(rng, 1), codes(rng, 1), 4, 2)
    words = -(-rows // 32) + 3
    # as many bits in both, so that the highest point is not at an end
    pool = rng.integers(0, 2**32, 4 * words, dtype=np.uint32)
    card.reserve(pool.size)
    card.pool[: pool.size].copy_to_device(pool)
    first, last = np.array([0, words, 1]), np.array([2 * words, 3 * words, words])
    counts = np.array([rows, rows, 1])
    systolic, length = card.split(Splits(first, last, counts))
    for t in range(3):
        assert (systolic[t], length[t]) == best_cut(pool, first[t], last[t], counts[t]), t


PAIRS = (
    list(oracle.pairs(50, (90, 310, 1_100), 4))
    if SIMULATED
    else list(oracle.pairs(50, (*oracle.LENGTHS, *oracle.LONG, 9_000), 64))
)
# one column is left where the ends in common are taken
PAIRS += [(b"AACAA", b"ACA"), (b"GAGTTTG", b"GTCG")]


# words of the paper's additions wrap, as they are meant to
@pytest.mark.filterwarnings("ignore:overflow encountered in scalar add")
@pytest.mark.parametrize("method", ["adaptive", "systolic", "block-step"])
def test_whole_answers(method, monkeypatch):
    monkeypatch.setattr(solve, "LEAF_CELLS", 40_000)
    monkeypatch.setattr(solve, "SHORTEST_MARK", 8)
    if SIMULATED:
        monkeypatch.setattr(lcs, "choose", lambda *_, **__: choice.Choice(method, "cuda"))
    for a, b in PAIRS:
        if SIMULATED and (len(a) > 500 or len(b) > 500) == (method == "block-step"):
            continue
        want = oracle.length(oracle.plain(a), oracle.plain(b))
        case = (method, a[:100], b[:100])
        options = {"method": method, "device": "cuda", "threads": 1}
        assert lcs.length(a, b, **options) == want, case
        some = lcs.sequence(a, b, **options)
        assert len(some) == want, case
        assert oracle.is_subsequence(some, oracle.plain(a)), case
        assert oracle.is_subsequence(some, oracle.plain(b)), case
        assert not oracle.GAPS & set(some), case
