"""Packed chunks against their definition, symbol by symbol."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpu.card.packing import ChunkTooLargeError, pack_chunk, pack_letters, packed_sizes
from trie.codes import InvalidBaseError, encode


def plain(bases, offsets, k):
    """The two masks as Python integers."""
    starts = set()
    for first, stop in zip(offsets[:-1], offsets[1:], strict=True):
        for start in range(int(first), int(stop) - k + 1):
            if all(symbol < 4 for symbol in bases[start : start + k]):
                starts.add(start)
    return starts


def check(bases, offsets, k, threads=1):
    chunk = pack_chunk(bases, offsets, k, threads=threads)
    for symbol, code in enumerate(bases):
        assert (int(chunk.bases[symbol // 16]) >> (30 - 2 * (symbol % 16))) & 3 == code % 4
    bits = np.unpackbits(chunk.starts.view(np.uint8), bitorder="little")
    assert set(np.flatnonzero(bits).tolist()) == plain(bases, offsets, k)
    assert (chunk.bases.size, chunk.starts.size) == packed_sizes(bases.size)
    assert chunk.windows() == len(plain(bases, offsets, k))


@settings(deadline=None, max_examples=150)
@given(st.data())
def test_any_chunk(data):
    k = data.draw(st.integers(1, 31))
    size = data.draw(st.integers(0, 200))
    seed = data.draw(st.integers(0, 2**16))
    rng = np.random.default_rng(seed)
    bases = rng.integers(0, 4, size).astype(np.uint8)
    for _ in range(data.draw(st.integers(0, 3))):
        if size:
            bases[rng.integers(0, size)] = 4
    cuts = data.draw(st.lists(st.integers(0, size), max_size=4))
    check(bases, np.array([0, *sorted(cuts), size], dtype=np.int64), k)


@pytest.mark.whole
@settings(deadline=None, max_examples=150)
@given(st.data())
def test_letters_are_packed_as_their_codes_are(data):
    k = data.draw(st.integers(1, 31))
    # some blocks have bases only, others not
    size = data.draw(st.integers(0, 200) | st.integers(4_000, 9_000))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**16)))
    letters = rng.choice(np.frombuffer(b"ACGTUacgtu", np.uint8), size)
    for _ in range(data.draw(st.integers(0, 3))):
        if size:
            letters[rng.integers(0, size)] = ord(data.draw(st.sampled_from("NnRyB")))
    cuts = data.draw(st.lists(st.integers(0, size), max_size=4))
    offsets = np.array([0, *sorted(cuts), size], dtype=np.int64)
    have, want = (
        pack_letters(letters.tobytes(), offsets, k),
        pack_chunk(encode(letters), offsets, k),
    )
    np.testing.assert_array_equal(have.bases, want.bases)
    np.testing.assert_array_equal(have.starts, want.starts)
    if size:
        bad = int(rng.integers(0, size))
        letters[bad] = data.draw(st.sampled_from([0, 10, 0x40, 0x5A, 0x5F, 0xC1, 0xFF]))
        with pytest.raises(InvalidBaseError) as error:
            pack_letters(letters.tobytes(), offsets, k)
        assert (error.value.position, error.value.byte) == (bad, letters[bad])


@pytest.mark.parametrize("k", [1, 2, 31])
def test_edges_of_words(k):
    for size in (0, 1, 15, 16, 17, 31, 32, 33, 63, 64, 65, 95, 96, 97):
        bases = np.arange(size, dtype=np.uint8) % 4
        check(bases, np.array([0, size]), k)


def test_parts_of_several_threads_meet():
    rng = np.random.default_rng(3)
    size = (1 << 18) + 77
    bases = rng.integers(0, 4, size).astype(np.uint8)
    bases[rng.integers(0, size, 50)] = 4
    offsets = np.concatenate(([0], np.sort(rng.integers(0, size, 200)), [size]))
    alone = pack_chunk(bases, offsets, 21)
    together = pack_chunk(bases, offsets, 21, threads=4)
    np.testing.assert_array_equal(alone.starts, together.starts)
    np.testing.assert_array_equal(alone.bases, together.bases)


def test_buffers_of_the_caller_are_filled():
    bases = np.array([0, 1, 2, 3, 4, 0], dtype=np.uint8)
    mine = np.full(20, 7, dtype=np.uint32), np.full(9, 7, dtype=np.uint32)
    chunk = pack_chunk(bases, np.array([0, 6]), 2, out_bases=mine[0], out_starts=mine[1])
    assert np.shares_memory(chunk.bases, mine[0])
    assert mine[1][0] == 0b111
    assert mine[1][1] == 7


def test_what_is_not_a_chunk_is_refused():
    with pytest.raises(ValueError, match="must lie in"):
        pack_chunk(np.zeros(3, np.uint8), np.array([0, 3]), 32)
    with pytest.raises(ValueError, match="offsets must ascend"):
        pack_chunk(np.zeros(3, np.uint8), np.array([0, 2]), 3)


def test_a_chunk_beyond_31_bits_is_refused(monkeypatch):
    monkeypatch.setattr("gpu.card.packing.MAX_SYMBOLS", 5)
    assert pack_chunk(np.zeros(5, np.uint8), np.array([0, 5]), 3).symbols == 5
    with pytest.raises(ChunkTooLargeError, match="a chunk of 6 symbols, at most 5 fit"):
        pack_chunk(np.zeros(6, np.uint8), np.array([0, 6]), 3)
