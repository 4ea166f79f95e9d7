"""FASTA in parts and pieces: records of any length, cut anywhere, give the same symbols."""

from __future__ import annotations

import random

import numpy as np
import pytest

from streamer.errors import DataError
from streamer.sequences import fasta, files, raw_file, source
from streamer.sequences.files import read_batches, read_letters, read_pieces
from tests.streamer.sequences.kit import InBlocks
from trie.codes import encode


@pytest.fixture
def blocks(monkeypatch):
    return InBlocks(monkeypatch)


def random_fasta(rng, ends):
    """A file of random records with what may stand between their lines, and the records."""
    wanted, text = [], "#first\n" * rng.randrange(2) + "\n" * rng.randrange(2)
    for number in range(rng.randrange(1, 6)):
        name = f"r{number} of>some {rng.choice('ab')}"
        sequence = ""
        text += " " * (rng.random() < 0.1) + f">{name}\n"
        for _ in range(rng.randrange(4)):
            line = "".join(rng.choices("ACGTNacgtn", k=rng.choice((0, 1, 2, 7, 300))))
            sequence += line
            text += rng.choice(("", "", "  ")) + line + rng.choice(("", "", " \t")) + "\n"
            text += "# a comment\n" * (rng.random() < 0.1)
        wanted.append((name.encode(), sequence.encode()))
    text = text[:-1] if rng.random() < 0.3 else text
    return text.replace("\n", ends).encode(), wanted


@pytest.mark.whole
@pytest.mark.parametrize("ends", ["\n", "\r\n", "\r"])
def test_files_handed_over_in_any_size(ends, blocks):
    rng = random.Random(7)
    for _ in range(60):
        data, records = random_fasta(rng, ends)
        wanted = [(name.split()[0].decode(), letters.decode()) for name, letters in records]
        for size in (1, 2, 3, 5, 17, 64, 100, 10_000):
            blocks(data, size)
            assert list(read_letters("texts")) == wanted, (data, size)


def test_what_is_no_sequence_is_left_in_wherever_lines_are_cut(blocks):
    for sequence in ("A C", "AC>GT", "AC#", "A" * 99 + " " * 80 + "C>", "--AC--", "\x00\xff"):
        data = f">r\n{sequence}\n".encode("latin-1")
        for size in (1, 2, 3, 50, 1_000):
            blocks(data, size)
            assert list(read_letters("texts")) == [("r", sequence)]


def test_letters_without_a_header(tmp_path):
    path = tmp_path / "text.fa"
    path.write_bytes(b"# a comment\n\n  ACGT\n>r\nA\n")
    with pytest.raises(DataError, match=r"record 1: .*\(line 3\), not 'ACGT'"):
        list(read_batches([str(path)]))


@pytest.mark.parametrize("mark", [">", "#"])
def test_a_header_without_end_is_not_held(mark, monkeypatch):
    monkeypatch.setattr(fasta, "LONGEST_HEADER", 1 << 20)
    read = 0

    def blocks(_):
        nonlocal read
        while read < 3 << 20:
            block = raw_file.new_block(1 << 17)
            block.array[:] = ord("r")
            block.array[block.first] = ord("r" if read else mark)
            read += 1 << 17
            yield block

    monkeypatch.setattr(source.SequenceSource, "_blocks", blocks)
    with pytest.raises(DataError, match="a header or comment of more than 1 MiB"):
        list(read_batches(["texts"]))
    assert read < 2 << 20


@pytest.mark.whole
@pytest.mark.parametrize("overlap", [0, 3, 50])
def test_pieces_hold_every_record_once(overlap, tmp_path, monkeypatch):
    monkeypatch.setattr(raw_file, "BLOCK_BYTES", 40)
    monkeypatch.setattr(files, "BATCH_READS", 4)
    rng = random.Random(8)
    path = tmp_path / "texts.fa"
    for _ in range(60):
        data, records = random_fasta(rng, "\n")
        path.write_bytes(data)
        wanted = [(name.split()[0].decode(), letters) for name, letters in records]
        for size in (1, 20, 100, 1_000):
            pieces = list(read_pieces(str(path), overlap, size=size))
            assert joined(pieces, overlap) == [(n, encode(s).tobytes()) for n, s in wanted]
        for batch_bases in (1, 100, 1_000):
            batches = list(read_batches([str(path)], batch_bases=batch_bases))
            read = [
                (name, batch.bases[a:b].tobytes())
                for batch in batches
                for name, a, b in zip(batch.names, batch.offsets, batch.offsets[1:], strict=False)
            ]
            assert read == [(n, encode(s).tobytes()) for n, s in wanted]
        assert list(read_letters(str(path))) == [(n, s.decode()) for n, s in wanted]


def joined(pieces, overlap):
    """The records of pieces that say themselves where they belong."""
    records = []
    going = False
    for piece in pieces:
        for i, name in enumerate(piece.reads.names):
            low, high = piece.reads.offsets[i : i + 2].tolist()
            codes = piece.reads.bases[low:high].tobytes()
            if i == 0 and going:
                assert piece.first == len(records) - 1
                before = records[-1][1]
                assert piece.again == min(overlap, len(before))
                assert piece.start == len(before) - piece.again
                assert codes[: piece.again] == before[piece.start :]
                assert len(codes) > piece.again
                records[-1] = (name, before + codes[piece.again :])
            else:
                assert i or (piece.first, piece.start, piece.again) == (len(records), 0, 0)
                records.append((name, codes))
        going = piece.continues
    assert not going
    return records


@pytest.mark.parametrize("position", [1, 30, 64, 65, 150, 400])
def test_a_fault_is_told_with_its_place_in_the_record(position, tmp_path, monkeypatch):
    monkeypatch.setattr(raw_file, "BLOCK_BYTES", 40)
    sequence = "ACGT" * 100
    faulty = sequence[: position - 1] + "!" + sequence[position:]
    path = tmp_path / "texts.fa"
    path.write_text(f">a\n{sequence[:30]}\n>b\n{faulty}\n>c\nACGT\n")
    seen = []
    place = rf"record 2 \(b\), position {position}: '!' is not a base"
    with pytest.raises(DataError, match=place):
        seen.extend(iter(read_batches([str(path)])))
    assert [batch.names for batch in seen] == [["a"]]
    pieces = []
    with pytest.raises(DataError, match=place):
        pieces.extend(iter(read_pieces(str(path), 5, size=50)))
    known = np.concatenate([piece.reads.bases[piece.again :] for piece in pieces])
    assert 30 <= known.size < 30 + position
    np.testing.assert_array_equal(known, encode((sequence[:30] + sequence)[: known.size]))


def test_the_first_of_several_faults_is_told(tmp_path):
    path = tmp_path / "texts.fa"
    path.write_bytes(b">a\nAC\n>b\nA!\n>c\x01\nAC\n>d\xc3\nAC\n")
    seen = []
    with pytest.raises(DataError, match=r"record 2 \(b\), position 2"):
        seen.extend(iter(read_batches([str(path)])))
    assert [batch.names for batch in seen] == [["a"]]
    path.write_bytes(b">a\nAC\n>b\nAC\n>c\x01\nAC\n>d\xc3\nAC\n")
    seen = []
    with pytest.raises(DataError, match=r"record 3: the name holds U\+0001"):
        seen.extend(iter(read_batches([str(path)])))
    assert [batch.names for batch in seen] == [["a", "b"]]
