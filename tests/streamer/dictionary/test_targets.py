"""The dictionary of FASTX records: its k-mers and which records hold each."""

from __future__ import annotations

import random
import re

import numpy as np
import pytest

from streamer.dictionary import index
from streamer.dictionary.targets import NO_SET, Dictionary
from streamer.errors import StreamerError
from streamer.sequences.files import read_batches
from tests.data_files import write_fasta
from tests.reference import exact as oracle
from tests.reference.exact import decode_kmer
from trie.codes import decode


def known_by(dictionary):
    """{k-mer: owners} as the oracle has it."""
    sets = dictionary.targets
    return {
        decode_kmer(int(code), dictionary.k): list(
            map(int, sets.members[sets.starts[s] : sets.starts[s + 1]])
        )
        for code, s in zip(dictionary.codes, dictionary.sets, strict=True)
    }


@pytest.mark.parametrize("strands", ["forward", "canonical", "both"])
@pytest.mark.parametrize("records", [1, 2, 40])
def test_equals_the_oracle(strands, records, tmp_path):
    rng = random.Random(records)
    made = [(f"t{i}", "".join(rng.choices("ACGTN", [8, 8, 8, 8, 1], k=60))) for i in range(records)]
    # a record again under another name, and one inside another
    made += [("copy", made[0][1]), ("part", made[0][1][10:30])] if records > 1 else []
    path = write_fasta(tmp_path / "t.fa", made)
    for k in (1, 2, 3, 5, 11, 31):
        dictionary = Dictionary.from_files([path], k, strands)
        assert (np.diff(dictionary.codes.astype(object)) > 0).all()
        assert known_by(dictionary) == oracle.dictionary_of(made, k, strands)


def test_labels(tmp_path):
    made = [(f"t{i}", "ACGTACG" + "T" * i) for i in range(10)]
    dictionary = Dictionary.from_files([write_fasta(tmp_path / "t.fa", made)], 7, "forward")
    by_kmer = {
        decode_kmer(int(code), 7): dictionary.targets.label(int(index))
        for code, index in zip(dictionary.codes, dictionary.sets, strict=True)
    }
    assert by_kmer["ACGTACG"] == "t0;t1;t2;t3;t4;t5;t6;t7;..."
    assert by_kmer["CGTACGT"] == "t1;t2;t3;t4;t5;t6;t7;t8;..."
    assert by_kmer["TACGTTT"] == "t3;t4;t5;t6;t7;t8;t9"
    assert dictionary.targets.label(int(NO_SET)) is None


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


CODES = "ambiguity codes in every window (write out their variants, or use asm --iupac)"
SHORT = "fewer than {} bases (give longer records or a smaller k)"


@pytest.mark.parametrize(
    ("records", "why"),
    [
        ([("a", "ACG")], f"1 of 1 records have {SHORT.format(4)}: a"),
        ([("a", "ACNGTN")], f"1 of 1 records have {CODES}: a"),
        (
            [("a", "ACG"), ("b", "ACNGT"), ("c", "")],
            f"1 of 3 records have {CODES}: b; 2 of 3 records have {SHORT.format(4)}: a, c",
        ),
        ([], "no records"),
    ],
)
def test_no_kmer_names_the_files_and_the_cause(records, why, tmp_path):
    path = write_fasta(tmp_path / "short.fa", records)
    message = f"{path}: the dictionary holds no whole 4-mer: {why}"
    with pytest.raises(StreamerError, match=f"^{re.escape(message)}$"):
        Dictionary.from_files([path], 4, "canonical")


def test_records_that_can_never_match_are_named(tmp_path, monkeypatch):
    monkeypatch.setattr(index, "_PIECE", 50)
    rng = random.Random(7)
    letters = "".join(rng.choices("ACGT", k=3000))
    long, gaps = ("long", "N" * 1000 + letters), ("gaps", "ACGTN" * 400)
    few = [(f"f{n}", "ACGT") for n in range(10)]
    first = write_fasta(tmp_path / "a.fa", [long, gaps, ("ok", letters[:9])])
    second = write_fasta(tmp_path / "b.fa", [*few, ("ok2", letters[:9])])
    said = []
    for strands in ("forward", "canonical", "both"):
        Dictionary.from_files([first, second], 9, strands, on_notice=said.append)
    assert said == 3 * [
        f"warning: without a whole 9-mer nothing can match: "
        f"{first}: 1 of 3 records have {CODES}: gaps; {second}: 10 of 11 records have "
        f"{SHORT.format(9)}: f0, f1, f2, f3, f4, f5, f6, f7, ..."
    ]
    found = Dictionary.from_files([first, second], 9).targets.without_kmers
    assert found == ["gaps", *(name for name, _ in few)]
    # another record of that name has k-mers
    twice = write_fasta(tmp_path / "c.fa", [("ok", "ACG"), ("ok", letters[:9])])
    assert Dictionary.from_files(twice, 9).targets.without_kmers == []
    said.clear()
    Dictionary.from_files(write_fasta(tmp_path / "d.fa", [long]), 9, on_notice=said.append)
    assert said == []
