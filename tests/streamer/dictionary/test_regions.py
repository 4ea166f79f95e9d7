"""Regions of a reference as targets, and BED files that are refused with their line."""

from __future__ import annotations

import gzip
import lzma
import re

import pytest

from streamer.cli.app import main
from streamer.dictionary.regions import records_of
from streamer.errors import DataError

REFERENCE = ">one first\nACGTACGTAC\n>two\nGGGGCCCC\n"


def files(folder, bed):
    (folder / "ref.fa").write_text(REFERENCE)
    (folder / "r.bed").write_text(bed)
    return str(folder / "r.bed"), str(folder / "ref.fa")


def made(folder, bed, **options):
    return [(name, letters) for name, letters, _ in records_of(*files(folder, bed), **options)]


def test_regions_in_their_order(tmp_path):
    bed = "track name=x\n#c\ntwo\t2\t6\tb\t1\t+\n\none\t0\t10\ta\r\none\t9\t10\n"
    assert made(tmp_path, bed) == [("b", "GGCC"), ("a", "ACGTACGTAC"), ("one:9-10", "C")]


def test_a_byte_order_mark_is_no_part_of_a_name(tmp_path):
    assert made(tmp_path, "\ufeffone\t0\t3\ta\n") == [("a", "ACG")]


def test_amplicons_span_their_primers(tmp_path):
    bed = ("one\t1\t3\ts_1_LEFT\t1\t+\none\t0\t2\ts_1_LEFT_alt1\none\t6\t8\ts_1_RIGHT\n"
           "two\t5\t8\ts_2_RIGHT\ntwo\t1\t2\ts_2_LEFT\none\t7\t9\ts_1_RIGHT_2\n")  # fmt: skip
    assert made(tmp_path, bed, amplicons=True) == [("s_1", "ACGTACGTA"), ("s_2", "GGGCCCC")]


def test_only_the_word_track_or_browser_begins_a_line_without_a_region(tmp_path):
    (tmp_path / "ref.fa").write_text(">track_1\nAACC\n>browser2\nGGTT\n")
    (tmp_path / "r.bed").write_text(
        "browser position x\ntrack\ntrack_1\t0\t2\ta\nbrowser2\t0\t4\tb\n"
    )
    found = records_of(str(tmp_path / "r.bed"), str(tmp_path / "ref.fa"))
    assert [(name, letters) for name, letters, _ in found] == [("a", "AA"), ("b", "GGTT")]


def test_a_name_that_is_a_dot_is_none(tmp_path):
    """As bedtools writes it; a target . would be that of unassigned reads."""
    bed = "one\t0\t4\t.\t1\t+\none\t4\t8\t.\t1\t-\n"
    assert made(tmp_path, bed) == [("one:0-4", "ACGT"), ("one:4-8", "ACGT")]


def test_a_record_that_is_there_twice_is_refused_where_it_is_named(tmp_path):
    bed, reference = files(tmp_path, "two\t0\t4\ta\none\t0\t4\tb\n")
    with open(reference, "a") as file:
        file.write(">one again\nTTTTTTTTTT\n")
    with pytest.raises(DataError, match=r"r\.bed: line 2: .*ref\.fa has two records one"):
        list(records_of(bed, reference))
    files(tmp_path, "two\t0\t4\ta\n")
    assert [name for name, *_ in records_of(bed, reference)] == ["a"]


@pytest.mark.parametrize("suffix", [".gz", ".xz"])
@pytest.mark.parametrize("damage", ["cut", "flipped"])
def test_a_damaged_file_is_an_error_with_its_name(suffix, damage, tmp_path, capsys):
    _, reference = files(tmp_path, "")
    lines = "".join(f"one\t0\t4\tname{number**3}\n" for number in range(2000)).encode()
    packed = bytearray((gzip if suffix == ".gz" else lzma).compress(lines))
    bed = tmp_path / f"r.bed{suffix}"
    if damage == "cut":
        del packed[len(packed) // 2 :]
    else:
        packed[len(packed) // 2] ^= 0xFF
    bed.write_bytes(packed)
    assert main(["regions", str(bed), "-r", reference]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert f"{bed}: " in line
    assert ("truncated" in line) == (damage == "cut")


@pytest.mark.parametrize(
    ("bed", "problem"),
    [
        ("one\t0\t4\ta\none\t0\t11\tb\n", "line 2: ends at 11, one has 10 bases"),
        ("three\t0\t4\n", "line 1: .*ref.fa has no record three"),
        ("one 0 4\n", "line 1: not BED"),
        ("one\t-1\t4\n", "line 1: not BED"),
        ("one\t4\t4\n", "line 1: the start, 4, is not before the end, 4"),
        ("one\t0\t4\ta\none\t1\t4\ta\n", "line 2: the name a is that of line 1, too"),
        ("one\t0\t4\ta b\n", "line 1: the name has blanks"),
        ("# nothing\n", "has no regions"),
    ],
)
def test_refused_with_the_line(bed, problem, tmp_path):
    with pytest.raises(DataError) as caught:
        made(tmp_path, bed)
    assert re.search(problem, str(caught.value))


@pytest.mark.parametrize(
    ("bed", "problem"),
    [
        ("one\t0\t4\ta\n", "line 1: a is neither NAME_LEFT nor NAME_RIGHT"),
        ("one\t0\t4\ta_LEFT\n", "line 1: a has only primers of one side, LEFT"),
        ("one\t0\t4\ta_LEFT\ntwo\t5\t6\ta_RIGHT\n", "line 2: a is on one, too"),
    ],
)
def test_refused_as_primers(bed, problem, tmp_path):
    with pytest.raises(DataError, match=problem):
        made(tmp_path, bed, amplicons=True)


def test_the_command_writes_fasta_or_nothing(tmp_path, capsys):
    bed, reference = files(tmp_path, "one\t2\t6\tx\n")
    out = tmp_path / "panel.fa"
    assert main(["regions", bed, "-r", reference, "-o", str(out)]) == 0
    assert out.read_text() == ">x one:2-6\nGTAC\n"
    files(tmp_path, "one\t2\t6\tx\none\t2\t60\ty\n")
    assert main(["regions", bed, "-r", reference, "-o", str(out)]) == 1
    assert "r.bed: line 2: ends at 60" in capsys.readouterr().err
    assert out.read_text() == ">x one:2-6\nGTAC\n"
