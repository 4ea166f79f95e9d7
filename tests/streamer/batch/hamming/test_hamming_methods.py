"""Every CPU method of the search with k mismatches gives what the definition gives."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest

from streamer.batch import hamming
from streamer.batch.choice import Choice
from streamer.batch.hamming import bit_sliced, pigeonhole
from streamer.batch.hamming.pigeonhole import pays
from streamer.batch.hamming.problem import Oriented
from streamer.errors import DataError, StreamerError, UsageError
from tests.reference import hamming as oracle

CPU_METHODS = [name for name, devices in hamming.METHODS.items() if "cpu" in devices]
LENGTHS = (1, 2, 7, 8, 31, 32, 33, 63, 64, 65, 127, 256)
STRANDS = ("both", "forward", "reverse")


def mismatches(length):
    return sorted({k for k in (0, 1, 2, 6, length - 1) if k < length})


def drawn(rng, length, letters="ACGT"):
    return "".join(rng.choices(letters, k=length))


def changed(rng, sequence, count):
    """The sequence with so many positions drawn anew."""
    letters = list(sequence)
    for place in rng.sample(range(len(letters)), min(count, len(letters))):
        letters[place] = rng.choice("ACGTN")
    return "".join(letters)


def rows(texts, patterns, k, **options):
    found = hamming.search(texts, patterns, k, device="cpu", **options)
    assert found.dtype.names == ("text", "start", "end", "distance", "strand", "pattern")
    return [tuple(row) for row in found.tolist()]


def test_the_two_oracles_agree():
    rng = random.Random(1)
    texts = [drawn(rng, size, "ACGTNacgtu") for size in (0, 5, 40)]
    patterns = [drawn(rng, 5), "NACGT", "ACGTA"]
    for strands in STRANDS:
        small = oracle.search(texts, patterns, 3, strands)
        assert small
        assert oracle.search_large(texts, patterns, 3, strands) == small


@pytest.mark.parametrize("length", LENGTHS)
def test_every_method_equals_brute_force(length):
    rng = random.Random(length)
    sizes = (0, length - 1, length, length + 1, 64, 63 + length, 500, 64 + length)
    for number, k in enumerate(mismatches(length)):
        texts = [drawn(rng, size, ("ACGT", "ACGTN", "AC")[i % 3]) for i, size in enumerate(sizes)]
        patterns = [
            drawn(rng, length),
            drawn(rng, length, "ACGTN"),
            changed(rng, texts[6][77 : 77 + length], k),
            oracle.reverse_complement(changed(rng, texts[6][5 : 5 + length], k)),
            "A" * length,
            "ACGT" * 64,
        ]
        patterns[-1] = patterns[-1][:length]
        strands = STRANDS[number % 3]
        wanted = oracle.search_large(texts, patterns, k, strands)
        assert wanted
        for method in CPU_METHODS:
            found = rows(texts, patterns, k, strands=strands, method=method)
            assert found == wanted, (length, k, strands, method)


@pytest.mark.parametrize("size", [2047, 2048, 2049, 4096 + 11, 2 * 16384 + 77])
@pytest.mark.parametrize(("length", "k"), [(1, 0), (12, 4), (33, 20), (256, 190)])
def test_around_the_edges_of_blocks_and_parts(size, length, k):
    rng = random.Random(size + length)
    text = drawn(rng, size, "ACGTACGTACGTN")
    patterns = [drawn(rng, length) for _ in range(3)]
    for at in (0, 250, min(1990, size - length), size - length):
        patterns.append(changed(rng, text[at : at + length], k // 2))
    wanted = oracle.search_large([text], patterns, k)
    for threads in (1, 2, 5):
        assert rows(text, patterns, k, threads=threads) == wanted, (size, length, k, threads)


def test_thousands_of_patterns():
    rng = random.Random(9)
    text = drawn(rng, 700, "ACGTACGTN")
    patterns = [drawn(rng, 9) for _ in range(2500)]
    wanted = oracle.search_large([text], patterns, 2)
    assert len(wanted) > 2000
    for method in (None, *CPU_METHODS):
        assert rows(text, patterns, 2, method=method) == wanted, method


def test_many_patterns_go_to_the_index_unless_a_method_is_asked_for():
    def oriented(count, length, k):
        codes = np.zeros((count, length), np.uint8)
        return Oriented(codes, np.arange(count, dtype=np.uint32), k)

    def method(*shape, free=True):
        return hamming.engine_for(
            Choice("bit-sliced", "cpu"), oriented(*shape), 1, free=free
        ).method

    # at 12 symbols and k = 6 there are more hits than comparisons
    for shape, index in (
        ((8, 12, 4), False), ((512, 24, 3), True), ((2000, 20, 4), True), ((2000, 12, 6), False)
    ):  # fmt: skip
        assert method(*shape) == ("pigeonhole" if index else "bit-sliced")
        assert pays(oriented(*shape), on_gpu=True) == index
    assert method(200, 24, 3, free=False) == "bit-sliced"


@pytest.mark.parametrize(("length", "k"), [(1, 0), (12, 0), (20, 1), (24, 5), (33, 3), (70, 2)])
def test_patterns_that_several_pieces_find_have_one_row(length, k):
    rng = random.Random(length)
    text = drawn(rng, 1400, "ACGT") + drawn(rng, 100, "ACGTN")
    patterns = [changed(rng, text[at : at + length], k) for at in range(0, 1400, 7)]
    wanted = oracle.search_large([text], patterns, k)
    assert rows(text, patterns, k, method="pigeonhole") == wanted
    assert len(wanted) > 50


@pytest.mark.whole
@pytest.mark.parametrize("method", CPU_METHODS)
def test_small_chunks_and_full_buffers_change_nothing(method, monkeypatch):
    rng = random.Random(12)
    texts = [drawn(rng, size, "AC") for size in (9000, 3, 700, 7, 0, 30)]
    patterns = [drawn(rng, 7, "AC") for _ in range(40)]
    wanted = rows(texts, patterns, 3, method=method)
    assert wanted == oracle.search_large(texts, patterns, 3)
    monkeypatch.setattr(hamming, "CHUNKS", (1, 777))
    monkeypatch.setattr(hamming, "LEAST_WORDS", 1)
    monkeypatch.setattr(hamming, "ROWS_AT_ONCE", 1000)
    monkeypatch.setattr(hamming, "LEAST_PART", 64)
    assert rows(texts, patterns, 3, method=method, threads=3) == wanted


@pytest.mark.whole
@pytest.mark.parametrize(("threads", "room"), [(1, 1 << 16), (3, 1)])
@pytest.mark.parametrize(
    ("method", "cells", "most"),
    [
        ("naive", 500 * 60, 500),
        ("pmasm", 500 * 60, 500),
        ("pmasm", 1, 1),
        ("shift-add", 500 * 60, 500),
        ("shift-add", 1, 64 * 6),
        ("pigeonhole", 500 * 10, 500),
        ("bit-sliced", 1, 2048),
        ("bit-sliced", 150, 2560),
    ],
)
def test_no_call_of_a_kernel_takes_long(monkeypatch, method, cells, most, room, threads):
    """The main thread notices an interrupt only between two."""
    rng = random.Random(17)
    text, patterns = drawn(rng, 20_000), [drawn(rng, 6) for _ in range(5)]
    wanted = oracle.search_large([text], patterns, 3, "both")
    kernel, sizes = hamming.ON_CPU[method].scan, []

    def noted(codes, first, stop, *more):
        sizes.append(stop - first)
        return kernel(codes, first, stop, *more)

    monkeypatch.setitem(hamming.ON_CPU, method, hamming.ON_CPU[method]._replace(scan=noted))
    monkeypatch.setattr(hamming, "LEAST_WORDS", room)
    monkeypatch.setattr(hamming, "MOST_CELLS", cells)
    assert rows(text, patterns, 3, method=method, threads=threads) == wanted
    assert max(sizes) == most
    assert sum(sizes) >= 20_000 - 5


@pytest.mark.parametrize(
    ("length", "k"), [(1, 0), (2, 1), (7, 2), pytest.param(20, 4, marks=pytest.mark.slow)]
)
def test_an_index_lists_the_patterns_near_each_piece(monkeypatch, length, k):
    """In calls of a kernel that take some patterns each."""
    monkeypatch.setattr(pigeonhole, "NEAR_AT_ONCE", 500)
    kernel, calls = pigeonhole._near, []
    monkeypatch.setattr(pigeonhole, "_near", lambda *a: calls.append(a[2] - a[1]) or kernel(*a))
    rng = np.random.default_rng(18)
    codes = rng.integers(0, 5, (30, length), dtype=np.uint8)
    index = pigeonhole.make_index(Oriented(codes, np.arange(30, dtype=np.uint32), k))
    q = index.length
    near = sum(math.comb(q, i) * 3**i for i in range(index.errors + 1))
    assert max(calls) <= max(1, 500 // near + 1)
    lists = iter(range(index.starts.size - 1))
    for i, place in enumerate(index.places):
        for code in range(4**q):
            symbols = code >> 2 * np.arange(q) & 3
            wanted = np.flatnonzero(
                (codes[:, place : place + q] != symbols).sum(axis=1) <= index.errors
            )
            word, bit = divmod(code, 64)
            assert int(index.bitmap[i, word]) >> bit & 1 == bool(wanted.size)
            if wanted.size:
                number = next(lists)
                below = int(index.bitmap[i, word]) & ((1 << bit) - 1)
                assert index.rank[i, word] + below.bit_count() == number
                found = index.members[index.starts[number] : index.starts[number + 1]]
                assert found.tolist() == wanted.tolist()
    assert index.members.size == index.starts[-1]
    assert next(lists, None) is None


def test_the_hits_of_a_block_are_in_order():
    rng = random.Random(13)
    text = drawn(rng, 3000, "ACG")
    for count in (1, 24, 72):
        patterns = [drawn(rng, 6, "ACG") for _ in range(count)]
        for k in (0, 2, 4):  # some, several at one position, nearly every window
            wanted = oracle.search_large([text], patterns, k, "forward")
            assert rows(text, patterns, k, strands="forward") == wanted, (count, k)


def test_a_buffer_too_small_for_a_block_tells_what_it_takes():
    patterns = Oriented(np.zeros((3, 4), np.uint8), np.arange(3, dtype=np.uint32), 1)
    codes = np.zeros(5000, np.uint8)
    prepared = bit_sliced.prepare(patterns)
    for room, stopped in ((100, (0, 0, 3 * 2048)), (6144, (2048, 3 * 2048, 3 * 2048))):
        words = np.empty(room, np.uint64)
        given = (codes, 0, 4997, 0, patterns.ids_in_place, 1, words)
        assert bit_sliced.scan(*given, *prepared) == stopped


def test_palindromes_have_a_row_a_strand():
    assert rows("AACGTT", "ACGT", 0) == [(0, 1, 5, 0, "+", 0), (0, 1, 5, 0, "-", 0)]


def test_letters_may_be_bytes_or_arrays_in_any_case():
    wanted = rows("ACGTTGCA", ["GTT"], 1)
    letters = np.frombuffer(b"acguugca", dtype=np.uint8)
    assert rows(b"acgttgca", [b"guu"], 1) == wanted
    assert rows(letters, np.frombuffer(b"GTT", dtype=np.uint8), 1) == wanted
    assert rows([], ["GTT"], 1) == []
    assert rows(b"acgttgca", [b"guu"], np.int64(1)) == wanted


def test_a_table_of_letters_is_a_pattern_a_row():
    letters = np.frombuffer(b"GTTCAN", dtype=np.uint8)
    assert rows("ACGTTGCA", letters.reshape(2, 3), 1) == rows("ACGTTGCA", ["GTT", "CAN"], 1)
    with pytest.raises(ValueError, match=r"one dimension, not the shape \(2, 3\)"):
        rows("ACGTTGCA", [letters.reshape(2, 3)], 1)


@pytest.mark.parametrize(
    ("patterns", "k", "said"),
    [
        (["ACGT", "ACG"], 1, r"record 2 \(1\): a pattern of 3 symbols, the first \(0\) has 4"),
        (["ACGT", ""], 1, r"record 2 \(1\): an empty pattern"),
        ([""], 0, r"record 1 \(0\): an empty pattern"),
        (["ACGT"], 4, r"record 1 \(0\): -k 4: a pattern of 4 symbols"),
        (["A" * 257], 4, r"record 1 \(0\): a pattern of 257 symbols; at most 256"),
        ([], 4, r"no patterns"),
    ],
)
def test_patterns_that_cannot_be_searched_for(patterns, k, said):
    with pytest.raises(DataError, match=said):
        hamming.search("ACGTACGT", patterns, k, device="cpu")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"k": -1}, "counted from 0"),
        ({"strands": "canonical"}, "unknown strands 'canonical'"),
        ({"method": "fft"}, "unknown method 'fft'"),
        ({"device": "tpu"}, "unknown device 'tpu'"),
        ({"method": "pmasm-thread", "device": "cpu"}, "runs on cuda, not on cpu"),
    ],
)
def test_options_that_make_no_sense(options, said):
    with pytest.raises(UsageError, match=said):
        hamming.search("ACGT", "ACG", **({"k": 1, "device": "cpu"} | options))


def test_letters_that_are_none():
    with pytest.raises(ValueError, match="position 3"):
        hamming.search("AC*T", "ACG", 1, device="cpu")
    with pytest.raises(StreamerError):
        hamming.search("ACGT", "ACG", 1, method="pmasm-thread", device="tpu")
