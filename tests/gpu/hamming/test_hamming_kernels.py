"""The kernels of the search with k mismatches against the CPU's methods.

tests/streamer/batch/hamming compares those with the definition.
"""

from __future__ import annotations

import numpy as np
import pytest

from gpu import hamming as plane_search
from gpu.exact import device_tree
from gpu.hamming import paper, sorting
from gpu.hamming.network import TILE
from gpu.hamming.sorting import GROUP, bin_width, in_order
from streamer.batch import hamming
from streamer.batch.choice import Choice
from streamer.batch.hamming import HammingCpu, engine_for
from streamer.batch.hamming.problem import Oriented
from tests.gpu import placement
from tests.gpu.placement import SIMULATED

pytestmark = placement.marks()

METHODS = (
    "bit-sliced", "pigeonhole", "naive", "shift-add", "pmasm-thread", "pmasm-block-thread",
    "pmasm-shared",
)  # fmt: skip
LENGTHS = (1, 2, 7, 8, 12, 31, 32, 33, 63, 64, 65, 127, 256)


@pytest.fixture(scope="module", autouse=True)
def lockstep_warps():
    """Blocks and tiles that the simulator can carry."""
    modules = (device_tree, paper, sorting, plane_search)
    with placement.small_blocks(32, *modules) as patch:
        if SIMULATED:
            patch.setattr(paper, "PIECE", 8)
            patch.setattr(sorting, "FEW_THREADS", 32)
            patch.setattr(sorting, "MANY_THREADS", 64)
        yield


def cases():
    """(length, k, symbols, patterns): every length, in the simulator with one k, else with all."""
    found = []
    for number, length in enumerate(LENGTHS):
        ks = sorted({k for k in (0, 1, 2, 6, length - 1) if k < length})
        if SIMULATED:
            found.append((length, ks[number % len(ks)], length + 40, 3))
        else:
            # a kernel a length and k up to 32 symbols, which takes a while to compile
            some = ks if length in (1, 12, 33, 64) else [ks[number % len(ks)]]
            found += [(length, k, size + length, 7) for k in some for size in (0, 1, 33_000)]
    return found


def text_and_patterns(length, symbols, count, seed):
    rng = np.random.default_rng(seed)
    text = rng.integers(0, 4, symbols, dtype=np.uint8)
    text[rng.random(symbols) < 0.03] = 4
    patterns = rng.integers(0, 4, (count, length), dtype=np.uint8)
    patterns[0] = text[symbols - length :]
    patterns[-1, rng.integers(0, length)] = 4
    return text, Oriented(patterns, 2 * np.arange(count, dtype=np.uint32) + 1, 0)


def on_cpu(text, patterns, k):
    windows = text.size - patterns.length + 1
    engine = HammingCpu("naive", Oriented(patterns.codes, patterns.ids, k), 1)
    return joined(engine.words(text, 0, windows))


def joined(parts):
    return np.concatenate([np.empty(0, np.uint64), *parts])


def on_card(method, text, patterns, k, first=0):
    searcher = searcher_of(method, patterns, k)
    return joined(searcher.words(text, first, text.size - patterns.length + 1))


def searcher_of(method, patterns, k):
    patterns = Oriented(patterns.codes, patterns.ids, k)
    return engine_for(Choice(method, "cuda"), patterns, 1, free=False)


@pytest.mark.parametrize(
    ("method", "length", "k", "symbols", "count"),
    [(method, *case) for method in METHODS for case in cases()],
)
def test_every_kernel_gives_what_the_cpu_gives(method, length, k, symbols, count):
    if SIMULATED and method == "pmasm-block-thread" and length > 64:
        symbols = length + 2  # a block a window
    text, patterns = text_and_patterns(length, symbols, count, seed=length + k)
    found = on_card(method, text, patterns, k)
    np.testing.assert_array_equal(
        found, on_cpu(text, patterns, k), err_msg=f"{method} {length} {k} {symbols}"
    )


@pytest.mark.parametrize(
    ("length", "k"), [(12, 4), (5, 1), (40, 24), pytest.param(32, 19, marks=pytest.mark.slow)]
)
def test_several_tiles_and_a_text_that_does_not_begin_at_a_word(length, k):
    text, patterns = text_and_patterns(length, 2 * TILE + 100, 6, seed=length)
    wanted = on_cpu(text[3:], patterns, k)
    assert wanted.size > 100
    np.testing.assert_array_equal(on_card("bit-sliced", text, patterns, k, first=3), wanted)


def test_more_hits_than_there_is_room_for(monkeypatch):
    monkeypatch.setattr(plane_search, "FIRST_CAPACITY", 16)
    text, patterns = text_and_patterns(4, 90, 2, seed=2)
    wanted = on_cpu(text, patterns, 3)
    assert wanted.size > 64
    np.testing.assert_array_equal(on_card("bit-sliced", text, patterns, 3), wanted)


def test_hits_of_several_groups_put_in_order_on_the_card(monkeypatch):
    monkeypatch.setattr(sorting, "LEAST_ON_GPU", 1)
    text, patterns = text_and_patterns(6, (3 << sorting.GROUP) + 77, 4, seed=3)
    text[:9000] = 4  # a group without hits
    wanted = on_cpu(text, patterns, 1)
    assert wanted.size > 100
    np.testing.assert_array_equal(on_card("bit-sliced", text, patterns, 1), wanted)


@pytest.mark.parametrize(("length", "k", "count"), [(2, 0, 4), (40, 39, 1), (4, 1, 4), (3, 2, 2)])
def test_hits_put_in_order_on_the_card(length, k, count, monkeypatch):
    monkeypatch.setattr(sorting, "LEAST_ON_GPU", 1)
    if SIMULATED:
        monkeypatch.setattr(sorting, "EACH", 2)
    text, patterns = text_and_patterns(length, 100 + length, count, seed=k)
    text[50:80] = 0
    wanted = on_cpu(text, patterns, k)
    assert wanted.size > 5
    np.testing.assert_array_equal(on_card("bit-sliced", text, patterns, k), wanted)


def test_chunks_that_are_sent_ahead():
    text, patterns = text_and_patterns(9, 230, 4, seed=8)
    searcher = searcher_of("bit-sliced", patterns, 5)
    searcher.chunk = 64
    windows = text.size - 9 + 1
    found = []
    for first in range(0, windows, 64):
        words = joined(searcher.words(text, first, min(first + 64, windows)))
        found.append(words + (np.uint64(first) << np.uint64(36)))
    np.testing.assert_array_equal(joined(found), on_cpu(text, patterns, 5))


def test_no_hits():
    text, patterns = text_and_patterns(31, 90, 2, seed=3)
    text[:] = 4
    for method in METHODS:
        assert on_card(method, text, patterns, 6).size == 0


def test_patterns_shared_out_among_blocks():
    text, patterns = text_and_patterns(6, 60, 23, seed=5)
    wanted = on_cpu(text, patterns, 2)
    np.testing.assert_array_equal(on_card("bit-sliced", text, patterns, 2), wanted)


def test_through_the_public_door(monkeypatch):
    chosen = Choice("bit-sliced", "cuda")
    monkeypatch.setattr(hamming, "choose", lambda *_, **__: chosen)
    texts = ["ACGTTGCATTACG", "", "CCATGNNACGT"]
    found = hamming.search(texts, ["ACGT", "CATG"], 1)
    wanted = hamming.search(texts, ["ACGT", "CATG"], 1, method="naive", device="cuda")
    assert found.tolist() == wanted.tolist()
    assert len(found) > 5


def test_words_in_order_whatever_their_number():
    rng = np.random.default_rng(6)
    ids = np.arange(0, 60, 3, dtype=np.uint64) << np.uint64(8)
    for windows, count in ((1, 3), (1000, 0), (1000, 17), (1 << 20, 300_000)):
        starts = rng.integers(0, windows, count).astype(np.uint64) << np.uint64(36)
        index = rng.integers(0, ids.size, count)
        distance = rng.integers(0, 256, count).astype(np.uint64)
        words = np.unique(starts | (index.astype(np.uint64) << np.uint64(8)) | distance)
        rng.shuffle(words)
        index = (words >> np.uint64(8)).astype(np.int64) & 0xFF
        wanted = np.sort((words & ~np.uint64(0xFF00)) | ids[index])
        np.testing.assert_array_equal(joined(in_order(words, ids, windows)), wanted)


def test_bins_hold_few_hits():
    for windows in (1, 1000, 1 << 25):
        for hits in (1, 999, 1 << 20, 1 << 28):
            shift = bin_width(hits, windows)
            assert hits / windows * 2**shift <= 2 or shift == 0
            assert hits / windows * 2**shift > 0.5 or shift == GROUP
