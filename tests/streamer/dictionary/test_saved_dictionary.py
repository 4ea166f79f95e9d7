"""A dictionary that one run saves serves the next: same events, refused where it does not fit."""

from __future__ import annotations

import os
import random

import numpy as np
import pytest

from streamer.dictionary.index import Index
from tests.data_files import write_fasta

pytestmark = pytest.mark.whole


@pytest.fixture
def reads(tmp_path):
    rng = random.Random(8)
    return write_fasta(
        tmp_path / "reads.fa", [(f"r{i}", "".join(rng.choices("ACGT", k=90))) for i in range(20)]
    )


@pytest.mark.parametrize("strands", ["forward", "canonical", "both"])
@pytest.mark.parametrize("k", [2, 9, 31])
def test_what_grew_is_known_next_time(strands, k, reads, tmp_path, streamer):
    saved = tmp_path / "known.idx"
    options = ["-k", k, "--strands", strands, "-q"]
    code, _, _ = streamer("match", reads, *options, "--seed", 0, "--save", saved)
    assert code == 0
    code, out, _ = streamer("match", reads, *options, "-d", saved)
    assert code == 0
    assert {line.split("\t")[3] for line in out.splitlines()[1:]} == {"match"}
    again = tmp_path / "again.idx"
    code, _, _ = streamer("match", reads, *options, "-d", saved, "--save", again)
    assert code == 0
    assert again.read_bytes() == saved.read_bytes()
    # each new k-mer takes eight bytes
    with_one_read = write_fasta(tmp_path / "one.fa", [("r", "ACGT" * 30)])
    code, _, _ = streamer("match", with_one_read, *options, "--seed", 0, "--save", again)
    assert code == 0
    grown, fewer = (Index.open(str(path)).grown for path in (saved, again))
    assert grown.size >= fewer.size
    assert os.path.getsize(saved) - os.path.getsize(again) < 8 * (grown.size - fewer.size) + 8192


def test_what_does_not_fit_is_refused(reads, tmp_path, streamer):
    saved = tmp_path / "known.idx"
    streamer("match", reads, "-k", 9, "--seed", 0, "--save", saved, "-q")
    for options, says in (
        (["-k", 8], "was saved with -k 9 --strands canonical, not with -k 8"),
        (["-k", 9, "--strands", "forward"], "not with -k 9 --strands forward"),
    ):
        code, out, err = streamer("match", reads, *options, "-d", saved, "-q")
        assert (code, out) == (1, "")
        assert says in err
    whole = saved.read_bytes()
    saved.write_bytes(whole[:100] + b"!" + whole[101:])
    code, _, err = streamer("match", reads, "-k", 9, "-d", saved, "-q")
    assert code == 1
    assert f"{saved}: is damaged" in err
    saved.write_bytes(whole)
    np.savez(tmp_path / "old.npz", inmaps=np.zeros(9))
    code, _, err = streamer("match", reads, "-k", 9, "-d", tmp_path / "old.npz", "-q")
    assert code == 1
    assert "a dictionary of an earlier version: make it anew with streamer index FASTX -k 9" in err
    code, _, err = streamer("index", reads, "--subtract", saved, "-k", 9, "-o", tmp_path / "x")
    assert code == 1
    assert "grew and are in no record" in err
    code, _, err = streamer("match", reads, "-k", 9, "--seed", 0, "--save", tmp_path / "no" / "x")
    assert code == 1
    assert "No such file" in err


def test_with_a_distance_records_keep_their_kmers(tmp_path, streamer):
    """A saved k-mer without a target that a record holds the other way round is that record's."""
    saved = tmp_path / "known.idx"
    target = write_fasta(tmp_path / "target.fa", [("t", "TTGGCAACCATTGACC")])
    turned = write_fasta(tmp_path / "turned.fa", [("r", "GGTCAATGGTTGCCAA")])
    code, _, _ = streamer("match", turned, "-k", 9, "--seed", 0, "--strands", "both", "-q",
                          "--save", saved)  # fmt: skip
    assert code == 0
    run = ("match", turned, "-k", 9, "--distance", 1, "-q", "-d", target)
    code, rows, _ = streamer(*run)
    assert code == 0
    assert len(rows.splitlines()) > 8
    assert streamer(*run, "-d", saved) == (0, rows, "")


def test_where_nothing_can_be_saved_is_told_before_the_work(reads, tmp_path, streamer):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    rows = tmp_path / "rows.tsv"
    for path, problem, status in (
        (tmp_path / "no" / "x", "No such file or directory", 1),
        (pipe, "is no regular file", 1),
        (tmp_path, "Is a directory", 1),
        (rows, "is named for two outputs", 2),
        ("-", "name a file", 2),
        ("", "the name of a file is empty", 2),
    ):
        run = ("match", reads, "-k", 9, "--seed", 0, "--save", path, "-o", rows, "-q")
        code, _, err = streamer(*run)
        assert code == status
        assert str(path) in err
        assert problem in err
        assert not rows.exists()
    assert pipe.is_fifo()


@pytest.mark.parametrize("mode", ["frozen", "grow"])
def test_beside_named_targets(mode, reads, tmp_path, streamer):
    saved = tmp_path / "known.idx"
    target = write_fasta(tmp_path / "target.fa", [("t", "ACGTTGCAACCATTGA")])
    mixed = write_fasta(tmp_path / "mixed.fa", [("named", "ACGTTGCAACCATTGA")])
    streamer("match", reads, "-k", 9, "--seed", 0, "--save", saved, "-q")
    for path, targets in ((mixed, {"t"}), (reads, {"."})):
        known = ("-d", target, "-d", saved, "--mode", mode)
        code, out, _ = streamer("match", path, "-k", 9, *known, "-q")
        assert code == 0
        rows = [line.split("\t") for line in out.splitlines()[1:]]
        assert {row[3] for row in rows} == {"match"}
        assert {row[5] for row in rows} == targets
