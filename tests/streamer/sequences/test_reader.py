"""The reader gives what the one before it gave, which made an object a record: rows and errors."""

from __future__ import annotations

import gzip
import re

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from streamer.errors import DataError
from streamer.sequences import files
from tests.data_files import DATA
from tests.reference import reader as before
from tests.streamer.sequences.kit import InBlocks, bam_of, outcome, rows_of

FASTQ = (
    b"@r1 about it\nACGTNacgtnu\n+\nIIIIIIIIIII\n@\n\n+\n\n@r3\tx\nACG\n+r3\tx\n@+\x01\n"
    b"@" + "réad4".encode() + b" \xff\nRYK\n+\nIII\n\n \n@long/" + b"n" * 70 + b"\n"
    b"" + b"ACGT" * 40 + b"\n+\n" + b"I" * 160 + b"\n@last\nA\n+\nI\n"
)
FASTA = (
    b"# first\n\n>r1 about\nACGTN\n  acgtnu \t\n# a comment\n\n>r2\n >r3 x\x0b \nRYKM\n\nA\n"
    b">" + "réc4".encode() + b"\tx\n" + b"ACGTTGCAA\n" * 8 + b">r5\n" + b"ACGT" * 50 + b"\n>\nAC\n"
)
BAM = bam_of([("r1", "ACGTN"), ("r2", ""), ("r3", "ACGRYTTAC"), ("long" * 40, "ACGT" * 30)])
FILES = {
    "fastq": FASTQ,
    "fastq-crlf": FASTQ.replace(b"\n", b"\r\n"),
    "fastq-blank": b"\n \r\n\n" + FASTQ.replace(b"\n@", b"\n\n@") + b"\n\n",
    "fasta": FASTA,
    "fasta-crlf": FASTA.replace(b"\n", b"\r\n"),
    "fasta-cr": FASTA.replace(b"\n", b"\r"),
    "bam": BAM,
    "nothing": b"\n\n",
    "neither": b"ACGT\n",
}
SIZES = (64, 65, 100, 333, 1 << 17)


@pytest.fixture
def blocks(monkeypatch):
    return InBlocks(monkeypatch)


def check(path, content, blocks, sizes=SIZES, rooms=(None,), **limits):
    path.write_bytes(content)
    wanted = outcome(before.read_batches([str(path)], **limits))
    for size in sizes:
        for room in rooms:
            blocks(content, size, room)
            found = outcome(files.read_batches([str(path)], **limits))
            assert found == wanted, (content, size, room)
    return wanted


@pytest.mark.whole
@pytest.mark.parametrize("name", FILES)
def test_cut_at_every_byte(name, tmp_path, blocks):
    content = FILES[name]
    faults = 0
    for end in range(len(content) + 1):
        wanted = check(tmp_path / "f", content[:end], blocks, sizes=(64, 100, 1 << 17))
        faults += bool(wanted) and isinstance(wanted[-1], str)
    assert (faults > len(content) // 2) == (not name.startswith("fasta") and name != "nothing")


@pytest.mark.parametrize("name", FILES)
def test_batches_of_any_size(name, tmp_path, blocks):
    for bases in (1, 3, 20, 100):
        check(tmp_path / "f", FILES[name], blocks, batch_bases=bases)
    for reads in (1, 2, 3):
        check(tmp_path / "f", FILES[name], blocks, batch_reads=reads)


def damaged(draw):
    """A file with a few bytes changed, removed or inserted, perhaps with another one behind it."""
    content = bytearray(draw(st.sampled_from(list(FILES.values()))))
    if draw(st.integers(0, 5)) == 0:
        content += draw(st.sampled_from(list(FILES.values())))
    some = st.sampled_from([b"\n", b"\r", b"\r\n", b"@", b">", b"+", b"#", b" ", b"\t", b"A", b"!"])
    for _ in range(draw(st.integers(0, 4))):
        at = draw(st.integers(0, len(content)))
        removed = draw(st.sampled_from([0, 0, 1, 1, 2, 40]))
        inserted = draw(st.one_of(some, some, st.just(b""), st.binary(max_size=3)))
        content[at : at + removed] = inserted
    return bytes(content)


# what begins as a compressed file is read by other means
MAGICS = b"\x1f\x8b", b"BZh", b"\xfd7zXZ\0", b"\x28\xb5\x2f\xfd"
DAMAGED = st.composite(damaged)().filter(lambda content: not content.startswith(MAGICS))


@pytest.mark.whole
@settings(max_examples=500)
@given(DAMAGED, st.sampled_from([64, 70, 127, 500, 1 << 17]), st.sampled_from([0, 1, 30, 500]))
@example(b"@r\nA\n+\n\xe9\n", 64, 0)
@example(b"@r\nAC\n+\nA\r\n", 64, 0)
@example(b"@r\nA!\n+\nII\n@\xff\nA\n+\nI\n", 64, 0)
@example(b"@\xff\nA!\n+\nII\n", 64, 0)
@example(b">a\nA-C\n>\xff\nA\n", 64, 0)
@example(b"#" + b" " * 70 + b"\n\rACGTACGTACGTACGTACGTACGT\n", 64, 0)
@example(b">a\n" + b"A" * 63 + b" " * 70 + b"\n" + b" " * 65 + b"C\n>b\n", 64, 30)
def test_damage(content, size, room):
    with pytest.MonkeyPatch.context() as patch:
        blocks = InBlocks(patch)
        for limits in ({}, {"batch_bases": 15}):
            check(PATH, content, blocks, (size,), (room,), **limits)


@pytest.fixture(autouse=True, scope="module")
def _path(tmp_path_factory):
    global PATH
    PATH = tmp_path_factory.mktemp("reader") / "f"


@pytest.mark.whole
@settings(max_examples=300)
@given(DAMAGED, st.sampled_from([64, 100, 1 << 17]), st.integers(0, 40), st.integers(1, 200))
def test_pieces(content, size, overlap, symbols):
    PATH.write_bytes(content)
    with pytest.MonkeyPatch.context() as patch:
        InBlocks(patch)(content, size)
        found, fault = joined(files.read_pieces(str(PATH), overlap, size=symbols), overlap)
    wanted, error = [], None
    for part in outcome(before.read_batches([str(PATH)])):
        wanted, error = (wanted, part) if isinstance(part, str) else (wanted + part, None)
    if fault != error:
        # of a record with two faults that of its name may be found first, since it was cut
        place = re.match(r".*: record \d+", error).group()
        assert fault.startswith(f"{place}: the name ")
    if fault is None:
        assert found == wanted
    else:
        # of the record with the fault there may be a part
        assert found[: len(wanted)] == wanted
        assert len(found) <= len(wanted) + 1


def joined(pieces, overlap):
    """The records of pieces, and the error that ended them."""
    records, again = [], False
    try:
        for piece in pieces:
            for name, codes in rows_of(piece.reads):
                if again:
                    assert piece.again == min(overlap, len(records[-1][1]))
                    assert piece.start == len(records[-1][1]) - piece.again
                    assert records[-1][1].endswith(codes[: piece.again])
                    records[-1] = name, records[-1][1] + codes[piece.again :]
                    again = False
                else:
                    records.append((name, codes))
            assert piece.first + len(piece.reads) == len(records)
            again = piece.continues
    except DataError as error:
        return records, str(error)
    assert not again
    return records, None


@pytest.mark.whole
@settings(max_examples=300)
@given(DAMAGED, st.sampled_from([64, 100, 1 << 17]))
def test_letters_as_they_stand(content, size):
    PATH.write_bytes(content)

    def of(read):
        try:
            return list(read(str(PATH))), None
        except DataError as error:
            return None, str(error)

    with pytest.MonkeyPatch.context() as patch:
        InBlocks(patch)(content, size)
        found = of(files.read_letters)
    assert found == of(before.read_letters)


@pytest.mark.parametrize("path", sorted(DATA.glob("*.gz")), ids=lambda path: path.name)
def test_real_files(path, tmp_path, blocks):
    content = gzip.decompress(path.read_bytes())
    rng = np.random.default_rng(16)
    check(tmp_path / "f", content, blocks, sizes=(64, 5000, 1 << 19, len(content)))
    for end in rng.integers(0, len(content), 6).tolist():
        size = int(rng.integers(64, 1 << 16))
        check(tmp_path / "f", content[:end], blocks, sizes=(size,), batch_bases=40_000)
