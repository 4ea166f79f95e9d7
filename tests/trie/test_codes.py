"""Codes of bases: encoded, packed, sorted, and their prefixes."""

from __future__ import annotations

import numpy as np
import pytest

from trie import ascending
from trie.codes import GAP, InvalidBaseError, encode, pack_codes, unpack_codes
from trie.index.kmer_index import KmerIndex
from trie.prefixes import PrefixDepths
from trie.snapshots.tree_bitmap import walk
from trie.trees.hybrid_tree import snapshot

CODES = {letter: code for code, pair in enumerate(("Aa", "Cc", "Gg", "TtUu")) for letter in pair}
CODES |= dict.fromkeys("NRYKMSWBDHVnrykmswbdhv", GAP)


@pytest.mark.parametrize("size", [1, 7, 8, 9, 17, 2047, 2048, 2049, 4104])
def test_every_byte_at_any_place(size: int) -> None:
    rng = np.random.default_rng(size)
    for byte in range(256):
        letters = rng.choice(np.frombuffer(b"ACGTUacgtu", dtype=np.uint8), size)
        at = int(rng.integers(size))
        letters[at] = byte
        if chr(byte) in CODES:
            want = [CODES[chr(letter)] for letter in letters]
            assert encode(letters).tolist() == want, (byte, at)
            assert encode(letters.tobytes()).tolist() == want, (byte, at)
        else:
            with pytest.raises(InvalidBaseError) as caught:
                encode(letters)
            assert (caught.value.byte, caught.value.position) == (byte, at)


def test_the_first_of_two_bad_letters_is_told() -> None:
    letters = bytearray(b"ACGT" * 2_000)
    letters[5_000:5_000] = b"N"
    letters[3_001] = letters[7_000] = ord("!")
    with pytest.raises(InvalidBaseError) as caught:
        encode(letters)
    assert caught.value.position == 3_001


@pytest.mark.parametrize("share_of_gaps", [0, 0.1, 1])
def test_codes_come_back(share_of_gaps):
    for size in (*range(20), 63, 64, 65, 1000, 4099):
        rng = np.random.default_rng(size)
        codes = rng.integers(0, 4, size, dtype=np.uint8)
        codes[rng.random(size) < share_of_gaps] = GAP
        packed, gaps = pack_codes(codes)
        assert packed.size == -(-size // 4)
        assert gaps.tolist() == [i for i, code in enumerate(codes) if code == GAP]
        assert np.array_equal(unpack_codes(packed, gaps, size), codes)


def test_the_first_base_is_lowest():
    packed, _ = pack_codes(np.array([3, 0, 2, 1, 1], dtype=np.uint8))
    assert packed.tolist() == [0b01_10_00_11, 0b01]


@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize(("held", "more"), [(0, 0), (0, 5), (5, 0), (1, 1), (40, 7), (7, 90)])
def test_both_ways(held, more, threads, monkeypatch):
    monkeypatch.setattr(ascending, "_GRAIN", 3)
    rng = np.random.default_rng(held + more)
    for _ in range(20):
        first = np.unique(rng.integers(0, 150, held, dtype=np.uint64))
        second = np.unique(rng.integers(0, 150, more, dtype=np.uint64))
        new = ascending.lacking(first, second, threads)
        assert new.tolist() == sorted(set(second.tolist()) - set(first.tolist()))
        where = ascending.places(first, second, threads)
        assert where.tolist() == [
            first.tolist().index(code) if code in first else -1 for code in second
        ]
        both = ascending.merged(first, second, threads)
        assert both.tolist() == sorted(first.tolist() + second.tolist())


def test_largest_codes():
    top = np.array([0, 2**62 - 1, 2**64 - 1], dtype=np.uint64)
    assert ascending.merged(top, top[1:]).tolist() == [0, *[2**62 - 1] * 2, *[2**64 - 1] * 2]
    assert ascending.lacking(top[:2], top).tolist() == [2**64 - 1]


@pytest.mark.parametrize("canonical", [False, True])
@pytest.mark.parametrize(
    ("k", "size"),
    [
        (1, 0),
        (1, 2),
        (2, 65),
        (3, 3000),
        (9, 1),
        (15, 3000),
        (16, 65),
        (30, 3000),
        (31, 0),
        (31, 2),
    ],
)
def test_equals_the_walk(k: int, size: int, canonical: bool) -> None:
    rng = np.random.default_rng(k * 100 + size)
    codes = rng.integers(0, 4**k, size, dtype=np.uint64)
    # half of them share all but their last bases, so that the upper bits do not tell them apart
    codes[::2] &= np.uint64(4 ** min(k, 5) - 1)
    codes = np.unique(codes)
    bases = rng.integers(0, 4, 70_000, dtype=np.uint8)
    bases[rng.integers(0, bases.size, 200)] = 4
    bases[1000:1400] = 0
    bases[5000:5400] = 3
    offsets = np.array([0, 0, 3, 40, 1200, 1200, 69_990, bases.size])
    index = KmerIndex(k, expected=codes.size)
    index.add(codes)
    events = index.match(bases, offsets, canonical=canonical)
    _, want, _ = walk(snapshot(codes, k), bases, offsets, canonical=canonical)
    for threads in (1, 3):
        depths = np.zeros(bases.size, dtype=np.uint8)
        PrefixDepths(codes, k).measure(
            bases, offsets, events, depths, canonical=canonical, threads=threads
        )
        np.testing.assert_array_equal(depths, want)
