"""K-mers of records collected by shard: sorted stably, cut anywhere, with the records of each."""

from __future__ import annotations

import numpy as np
import pytest

from streamer.dictionary import targets
from streamer.dictionary.targets import Dictionary, _sort_stably
from streamer.sequences.files import read_batches
from tests.data_files import write_fasta
from trie.codes import decode


@pytest.mark.parametrize("bits", [2, 6, 20, 56])
@pytest.mark.parametrize("kind", ["random", "repeats", "same beginning", "ascending", "equal"])
def test_sorts_stably(bits, kind):
    for size in (1, 2, 31, 33, 500, 20_000):
        check_sorted(bits, size, kind)


def check_sorted(bits, size, kind):
    rng = np.random.default_rng(size * 64 + bits)
    codes = rng.integers(0, 2**bits, size, dtype=np.uint64)
    if kind == "repeats":
        codes = codes[rng.integers(0, max(1, size // 50), size)]
    elif kind == "same beginning":
        codes &= np.uint64((1 << max(1, bits // 3)) - 1)
    elif kind == "ascending":
        codes.sort()
    elif kind == "equal":
        codes[:] = codes[0]
    owners = np.arange(size, dtype=np.int32)
    want = np.argsort(codes, kind="stable")
    sorted_codes = codes[want]
    _sort_stably(codes, owners, np.empty_like(codes), np.empty_like(owners), bits)
    np.testing.assert_array_equal(codes, sorted_codes)
    np.testing.assert_array_equal(owners, want)


@pytest.mark.parametrize("k", [1, 3, 31])
@pytest.mark.parametrize("strands", ["forward", "canonical"])
def test_long_records_cut_into_pieces(k, strands, tmp_path, monkeypatch):
    """A window across a cut is there once, with its record; so is one that several records hold."""
    rng = np.random.default_rng(k)
    bases = rng.integers(0, 4, 900_000, dtype=np.uint8)
    bases[rng.integers(0, bases.size, 500)] = 4
    letters = decode(bases).tobytes().decode()
    records = [("none", ""), ("long", letters), ("part", letters[300_000:600_000]), ("last", "ACG")]
    first = write_fasta(tmp_path / "a.fa", [*records, ("t", letters[-100:])])
    second = write_fasta(tmp_path / "b.fa", [("again", letters[131_000:132_000])])
    whole = Dictionary.from_batches(read_batches([first, second]), k, strands)
    monkeypatch.setattr(targets, "_PIECE", 1000)
    cut = Dictionary.from_files([first, second], k, strands)
    assert list(cut.targets.names) == ["none", "long", "part", "last", "t", "again"]
    np.testing.assert_array_equal(cut.codes, whole.codes)
    for mine, theirs in np.unique(np.column_stack((cut.sets, whole.sets)), axis=0):
        np.testing.assert_array_equal(
            cut.targets.members_of(mine), whole.targets.members_of(theirs)
        )
    if k == 31:
        # long alone, and with part, with t and with again
        assert np.unique(cut.sets).size == 4
