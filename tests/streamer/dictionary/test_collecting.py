"""K-mers of records collected by shard: sorted stably, cut anywhere, with the records of each."""

from __future__ import annotations

import numpy as np
import pytest

from streamer.dictionary import index
from streamer.dictionary.targets import Dictionary
from streamer.sequences.files import read_batches
from tests.data_files import write_fasta
from trie.codes import decode


@pytest.mark.parametrize(
    ("k", "strands"), [(1, "forward"), (3, "canonical"), (31, "canonical"), (31, "forward")]
)
def test_long_records_cut_into_pieces(k, strands, tmp_path, monkeypatch):
    """A window across a cut is there once, with its record; so is one that several records hold."""
    rng = np.random.default_rng(k)
    bases = rng.integers(0, 4, 200_000, dtype=np.uint8)
    bases[rng.integers(0, bases.size, 100)] = 4
    letters = decode(bases).tobytes().decode()
    records = [("none", ""), ("long", letters), ("part", letters[60_000:120_000]), ("last", "ACG")]
    first = write_fasta(tmp_path / "a.fa", [*records, ("t", letters[-100:])])
    second = write_fasta(tmp_path / "b.fa", [("again", letters[31_000:32_000])])
    whole = Dictionary.from_batches(read_batches([first, second]), k, strands)
    monkeypatch.setattr(index, "_PIECE", 1000)
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
