"""The benchmark of files: equal reads in every format, and a row for every command."""

from __future__ import annotations

import gzip
import subprocess
import sys

import numpy as np
import pytest

from benchmarks import file, read_files
from benchmarks.inputs import random_codes
from benchmarks.processes import measured
from streamer.sequences.files import read_batches
from tests.streamer.sequences.kit import rows_of
from trie.cpu.team import Team

GENOME = random_codes(20_000, 3)


def rows(path):
    with Team(2) as team:
        return [row for batch in read_batches([str(path)], team=team) for row in rows_of(batch)]


@pytest.mark.parametrize("length", [1, 7, 150])
def test_every_format_holds_the_same_reads(length, tmp_path, monkeypatch):
    monkeypatch.setattr(read_files, "_AT_ONCE", 9_000)
    monkeypatch.setattr(read_files, "_PART_BYTES", 0xFF00)
    for suffix in read_files.FORMATS:
        read_files.write_reads(tmp_path / f"r.{suffix}", GENOME, 50_000, length)
    plain = rows(tmp_path / "r.fq")
    assert len(plain) == 50_000 // length
    assert len({name for name, _ in plain}) == len(plain)
    for suffix in read_files.FORMATS[1:]:
        assert rows(tmp_path / f"r.{suffix}") == plain, suffix
    packed = (tmp_path / "r.fq.gz").read_bytes()
    assert gzip.decompress(packed) == (tmp_path / "r.fq").read_bytes()


def test_half_of_the_reads_are_of_the_genome():
    (codes,) = read_files.reads_of(GENOME, 100_000, 100, 5)
    pieces = np.lib.stride_tricks.sliding_window_view(GENOME, 12)
    known = {piece.tobytes() for piece in pieces} | {(3 - p[::-1]).tobytes() for p in pieces}
    hit = [any(row[at : at + 12].tobytes() in known for at in range(0, 80, 9)) for row in codes]
    assert sum(hit[::2]) > 490
    assert sum(hit[1::2]) < 50


@pytest.mark.whole
def test_a_row_for_every_command(monkeypatch):
    monkeypatch.setattr(file, "FORMATS", ("fq.gz",))
    monkeypatch.setattr(file, "LENGTHS", (150,))
    monkeypatch.setattr(file, "found_peers", lambda *_: [])
    found = list(file.whole("cpu", 100_000, 2, 1))
    assert [row["command"] for row in found] == ["reads", "intervals", "targets", "filter", "send"]
    assert all(row["bases/s"] > 0 and row["peak GB"] > 0.05 for row in found)
    parts = list(file.stages("cpu", 100_000, 2))
    for command in ("reads", "filter"):
        *stages, bound = [row for row in parts if row["command"] == command]
        assert [row["stage"] for row in stages] == [
            "decompress", "parse", "match", "format", "write"
        ]  # fmt: skip
        assert "busy" in bound["stage"] or "bound by" in bound["stage"]


def test_a_command_that_fails_is_no_row():
    with pytest.raises(subprocess.CalledProcessError):
        measured([sys.executable, "-c", "raise SystemExit(3)"])
