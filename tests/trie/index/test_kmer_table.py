"""The hash table of buckets: doubling, spilled keys, parts; a Python set is the oracle."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from trie.cpu.vectors import aligned_words
from trie.index.buckets import INVERSE, ODD, REGIONS, code_of, key_of
from trie.index.kmer_index import NO_VALUES, KmerTable, bucket_bits_for
from trie.windows import MATCH


def insert_all(table: KmerTable, codes: NDArray[np.uint64]) -> NDArray[np.bool_]:
    new = np.empty(codes.size, dtype=np.bool_)
    values = codes.astype(np.uint32)
    at = 0
    while (at := table.insert(codes, values, at, 0, 0, new)) < codes.size:
        table.enlarge()
    return new


def look_up(
    table: KmerTable, codes: NDArray[np.uint64], k: int, *, with_values: bool = True
) -> tuple[NDArray[np.bool_], NDArray[np.uint32]]:
    """Whether each code is there, and its value: each is a read of its own."""
    shifts = np.arange(2 * (k - 1), -1, -2, dtype=np.uint64)
    bases = ((codes[:, None] >> shifts) & np.uint64(3)).astype(np.uint8).ravel()
    offsets = np.arange(0, bases.size + 1, k)
    events = np.zeros(bases.size, dtype=np.uint8)
    values = np.zeros(bases.size if with_values else 0, dtype=np.uint32)
    table.match(bases, offsets, k, False, 0, bases.size, events[:0], events, values)
    return events[::k] == MATCH, values[::k]


def codes_in_one_bucket(count: int, bucket_bits: int, bucket: int, k: int) -> NDArray[np.uint64]:
    """Codes below 4**k whose home is the given bucket of a table with that many buckets."""
    rng = np.random.default_rng(bucket)
    found: list[int] = []
    mask = (1 << 64) - 1
    while len(found) < count:
        # a key is (code + 1) * ODD: choose keys, keep those whose code is short enough
        low = int(rng.integers(0, 1 << (63 - bucket_bits)))
        key = ((bucket << (64 - bucket_bits)) | low) & mask
        code = (key * int(INVERSE) - 1) & mask
        if code < 4**k:
            found.append(code)
    return np.array(sorted(set(found)), dtype=np.uint64)


def test_keys_are_a_bijection_and_never_free() -> None:
    assert (int(ODD) * int(INVERSE)) % 2**64 == 1
    for code in (0, 1, 4**31 - 1, 12345678901234567):
        with np.errstate(over="ignore"):
            key = key_of.py_func(np.uint64(code))
            assert key != 0
            assert int(code_of.py_func(key)) == code


def test_buckets_are_cache_lines() -> None:
    for count in (8, 64, 8192):
        array = aligned_words(count)
        assert array.ctypes.data % 64 == 0
        assert array.size == count


@pytest.mark.whole
@pytest.mark.parametrize("with_values", [False, True])
def test_many_doublings(with_values: bool) -> None:
    rng = np.random.default_rng(3)
    codes = rng.integers(0, 4**31, 200_000).astype(np.uint64)
    codes[100_000:120_000] = codes[:20_000]
    table = KmerTable(with_values=with_values)
    sizes = set()
    seen: set[int] = set()
    for start in range(0, codes.size, 9_973):
        part = codes[start : start + 9_973]
        new = insert_all(table, part)
        expected = []
        for code in part.tolist():
            expected.append(code not in seen)
            seen.add(code)
        assert new.tolist() == expected
        sizes.add(table.memory_bytes())
    assert len(sizes) >= 5
    assert len(table) == len(seen)
    assert sorted(table.codes().tolist()) == sorted(seen)
    found, values = look_up(table, codes, 31, with_values=with_values)
    assert found.all()
    if with_values:
        np.testing.assert_array_equal(values, codes.astype(np.uint32))
    others = codes ^ np.uint64(4**30)
    found, _ = look_up(table, others, 31, with_values=with_values)
    np.testing.assert_array_equal(found, np.isin(others, codes))


@pytest.mark.parametrize("bucket", [0, 5, 63, 64, 1023])
def test_a_crowded_bucket_spills_around_its_region_and_survives_doubling(bucket: int) -> None:
    codes = codes_in_one_bucket(60, 10, bucket, 31)
    others = codes_in_one_bucket(30, 10, bucket // 64 * 64, 31)
    absent = codes_in_one_bucket(90, 10, (bucket + 1) % 1024, 31)
    table = KmerTable(with_values=True)
    assert insert_all(table, codes[:50]).all()
    insert_all(table, others)
    stored = set(codes[:50].tolist()) | set(others.tolist())
    for _ in range(4):
        found, values = look_up(table, codes[:50], 31)
        assert found.all()
        np.testing.assert_array_equal(values, codes[:50].astype(np.uint32))
        assert look_up(table, others, 31)[0].all()
        for wrong in (codes[50:], absent):
            found = look_up(table, wrong, 31)[0]
            assert found.tolist() == [c in stored for c in wrong.tolist()]
        table.enlarge(threads=2)
    assert set(table.codes().tolist()) == stored


def test_parts_fill_the_same_set() -> None:
    codes = np.random.default_rng(4).integers(0, 4**21, 3_000).astype(np.uint64)
    table = KmerTable()
    new = np.zeros(codes.size, dtype=np.bool_)
    for part in range(REGIONS):
        assert table.insert(codes, NO_VALUES, 0, part, 4, new) == codes.size
    assert len(table) == np.unique(codes).size
    assert int(new.sum()) == len(table)
    np.testing.assert_array_equal(np.sort(table.codes()), np.unique(codes))


def test_a_table_for_a_number_of_keys() -> None:
    assert bucket_bits_for(0) == bucket_bits_for(1000) == 10
    for count in (5_000, 10**6, 10**7, 10**8):
        bits = bucket_bits_for(count)
        assert 0.3 < count / (8 << bits) <= 0.625
