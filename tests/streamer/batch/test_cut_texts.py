"""Texts that are read in pieces give what they give when they are read whole."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest

from streamer.batch.primer import problem
from streamer.sequences import files, raw_file
from tests.data_files import write_fasta

pytestmark = pytest.mark.whole


def turned(sequence):
    return sequence[::-1].translate(str.maketrans("ACGT", "TGCA"))


@pytest.fixture
def texts(tmp_path):
    rng = random.Random(3)

    def letters(size):
        return "".join(rng.choices("ACGTN", (9, 9, 9, 9, 1), k=size))

    motif = "ACGTTGCAAC"
    long = letters(150) + motif + letters(40) + turned(motif) + "ACACACACAC" * 9 + letters(90)
    return write_fasta(
        tmp_path / "texts.fa",
        [
            ("a", letters(5)),
            ("long", long),
            ("empty", ""),
            ("b", letters(70)),
            ("long", long[:133]),
        ],
    )


@pytest.fixture
def in_pieces(monkeypatch):
    """From now on files are cut every few symbols."""

    def cut():
        monkeypatch.setattr(raw_file, "BLOCK_BYTES", 13)
        monkeypatch.setattr(files, "PIECE_BASES", 20)
        monkeypatch.setattr(files, "BATCH_READS", 2)
        monkeypatch.setattr(problem, "piece_symbols", lambda overlap, **_: 4 * overlap)

    return cut


JOBS = (
    ("asm", "{}", "--pattern", "ACGTTGCAAC", "-k", 3),
    ("asm", "{}", "--pattern", "ACGTTGCAAC", "-k", 3, "--report", "best"),
    ("asm", "{}", "--pattern", "ACACAC", "-k", 4, "--report", "best", "--strands", "forward"),
    ("asm", "{}", "--pattern", "ACACAC" * 12, "-k", 20, "--method", "sequential"),
    ("hamming", "{}", "--pattern", "ACGTTGCAAC", "--pattern", "ACACACACAC", "-k", 5),
    ("hamming", "{}", "--pattern", "A", "-k", 0),
    ("hamming", "{}", "--pattern", "ACACAC" * 10, "-k", 30, "--method", "naive"),
    ("primer", "{alpha}", "{}", "-k", 4),
    ("primer", "{alpha}", "{}", "-k", 4, "--strands", "both"),
    ("primer", "{alpha}", "{}", "-k", 4, "--known", "{alpha}", "--known-table", "{table}"),
)  # fmt: skip


@pytest.mark.parametrize("job", JOBS, ids=lambda job: " ".join(map(str, job[:1] + job[2:])))
def test_the_same_rows(streamer, texts, in_pieces, job, tmp_path):
    sequence = re.sub(r">.*\n|\n", "", Path(texts).read_text())
    x = sequence[140:165] + turned(sequence[20:45]) + sequence[250:270]
    alpha = write_fasta(tmp_path / "alpha.fa", [("x", x), ("y", "ACACACCACA")])
    table = tmp_path / "table.tsv"
    command = [str(word).format(texts, alpha=alpha, table=table) for word in job]
    whole = streamer(*command, "--device", "cpu", "-q")
    known = table.read_text() if table.exists() else ""
    assert whole[0] == 0
    assert whole[1].count("\n") > 1
    in_pieces()
    assert streamer(*command, "--device", "cpu", "-q") == whole
    assert not known or table.read_text() == known
