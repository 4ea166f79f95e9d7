"""Gzip and BGZF: all text, and the error behind it, however bytes come and end."""

from __future__ import annotations

import gzip
import io
import os
import random
import threading
import zlib
from itertools import product

import numpy as np
import pytest

from streamer.errors import DataError
from streamer.output.output_file import END_BLOCK
from streamer.sequences import bgzf
from streamer.sequences.bgzf import INFLATE, Watched
from streamer.sequences.decompression import _READ_BYTES, _members
from streamer.sequences.files import read_batches
from streamer.sequences.raw_file import RawFile
from tests.streamer.sequences.kit import bam_of, bgzf_block, bgzf_blocks, outcome
from tests.waiting import DEADLINE
from trie.cpu.borrowed import Borrowed
from trie.cpu.team import Team

RECORDS = [(f"r{i}", "ACGTACGTAC") for i in range(6)]


WHOLE = bam_of(RECORDS)
RECORD_BYTES = len(bam_of(RECORDS[:1])) - len(bam_of([]))
HALF = len(bam_of([])) + 3 * RECORD_BYTES
BLOCKS = bgzf_blocks(WHOLE, HALF)


@pytest.fixture
def names(tmp_path, streamer, monkeypatch):
    """Exit code, names of reads and errors for a file with some content, by name or on a pipe."""

    def read(content, pipe=False):
        path = tmp_path / "reads.bam"
        path.write_bytes(content)
        if pipe:
            monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(content)))
        code, out, err = streamer(
            "match", "-" if pipe else path, "--seed", 0, "-k", 4, "--report", "reads", "-q"
        )
        return code, [line.split("\t")[0] for line in out.splitlines()[1:]], err

    return read


@pytest.mark.parametrize("pipe", [False, True])
def test_a_bam_cut_at_a_record(names, pipe):
    code, found, err = names(BLOCKS[0], pipe)
    assert (code, found) == (1, ["r0", "r1", "r2"])
    place = "<stdin>" if pipe else "reads.bam"
    assert err.endswith(
        f"{place}: record 4: truncated after 3 records: BGZF's end block is missing\n"
    )
    assert err.count("\n") == 1
    code, found, err = names(b"".join(BLOCKS), pipe)
    assert (code, len(found)) == (1, 6)
    assert "truncated after 6 records" in err


@pytest.mark.parametrize(
    "content",
    [
        b"".join(BLOCKS) + END_BLOCK,
        BLOCKS[0] + END_BLOCK + BLOCKS[1] + END_BLOCK,
        b"".join(BLOCKS) + END_BLOCK + bytes(5000),
        gzip.compress(WHOLE),
        WHOLE,
    ],
    ids=["whole", "end block within", "zeros behind", "plain gzip", "uncompressed"],
)
@pytest.mark.parametrize("pipe", [False, True])
def test_a_whole_bam(names, content, pipe):
    assert names(content, pipe) == (0, [name for name, _ in RECORDS], "")


def test_a_bam_without_records(names):
    empty = bgzf_block(bam_of([]))
    assert names(empty + END_BLOCK) == (0, [], "")
    code, _, err = names(empty)
    assert code == 1
    assert "truncated after 0 records" in err


@pytest.mark.parametrize("cut", [1, 2, 12, 18, len(END_BLOCK) - 10, len(END_BLOCK) - 1])
def test_a_cut_end_block(tmp_path, cut):
    path = tmp_path / "reads.bam"
    path.write_bytes(b"".join(BLOCKS) + END_BLOCK[:cut])
    seen = []
    with pytest.raises(DataError, match=r"reads\.bam: record 7: "):
        seen.extend(iter(read_batches([str(path)])))
    assert [name for batch in seen for name in batch.names] == [name for name, _ in RECORDS]


def test_other_bytes_behind_the_end_block(names):
    code, _, err = names(b"".join(BLOCKS) + END_BLOCK + b"more")
    assert code == 1
    assert "reads.bam: record 7: " in err


@pytest.mark.parametrize("mark", [">", "@"])
def test_text_needs_no_end_block(names, mark):
    """Common programs that write FASTQ as BGZF leave it out."""
    text = "".join(f"{mark}r{i}\nACGTA\n" + "+\nIIIII\n" * (mark == "@") for i in range(4)).encode()
    assert names(b"".join(bgzf_blocks(text, 20))) == (0, ["r0", "r1", "r2", "r3"], "")


@pytest.mark.parametrize("zeros", [0, 1, 40])
def test_the_end_however_it_comes(zeros):
    ends = (END_BLOCK, False), (b"", True), (END_BLOCK[:-1], zeros == 0)
    for size, (end, lacks) in product((1, 3, 11, 28, 29, 64, 1 << 17), ends):
        file = io.BufferedReader(io.BytesIO(b"".join(BLOCKS) + end + bytes(zeros)), 64)
        watched = Watched(file)
        while watched.read1(size):
            pass
        assert watched.lacks_end_block() == lacks


PIECES = bgzf_blocks(WHOLE, HALF // 2)
PLAIN = gzip.compress(WHOLE, mtime=0)
EXTRA = PLAIN[:3] + b"\x04" + PLAIN[4:10] + b"\x04\x00ab\x00\x00" + PLAIN[10:]
FORMS = {
    "blocks": b"".join(PIECES) + END_BLOCK,
    "zeros behind": b"".join(PIECES) + END_BLOCK + bytes(70_000),
    "then gzip": b"".join(PIECES[:2]) + gzip.compress(b"".join(map(gzip.decompress, PIECES[2:]))),
    "no block at all": EXTRA,
}


def damaged(step):
    """Every form, cut at bytes everywhere, and with bytes changed."""
    for name, content in FORMS.items():
        size = len(content.rstrip(b"\0")) + 3
        yield f"{name}", content
        for at in range(0, size, step):
            yield f"{name} cut at {at}", content[:at]
            yield f"{name} changed at {at}", content[:at] + b"\x5a" + content[at + 1 :]


@pytest.mark.whole
def test_a_team_reads_what_one_thread_reads(tmp_path, inflating):
    path = tmp_path / "reads.bam"
    whole = 0
    for name, content in damaged(7):
        path.write_bytes(content)
        wanted = outcome(read_batches([str(path)], batch_reads=2))
        for threads in (1, 3):
            with Team(threads) as team:
                assert outcome(read_batches([str(path)], batch_reads=2, team=team)) == wanted, name
        whole += len(wanted) == 3
    assert whole >= len(FORMS) - 1


@pytest.mark.whole
@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("size", [1, 50, 1 << 18])
def test_groups_hold_every_byte(size, whole, monkeypatch, inflating):
    monkeypatch.setattr(bgzf, "_READ_BYTES", size)
    for name, content in damaged(97 if size == 1 else 17):
        for most in (1, HALF, 1 << 20):
            groups = list(bgzf.block_groups(io.BytesIO(content), most, whole=whole))
            assert b"".join(group.tobytes() for group in groups) == content, name
        if name == "blocks":
            texts = [bgzf.inflated(group)[1] for group in groups]
            found = [text.array[text.first : text.stop].tobytes() for text in texts]
            assert b"".join(found) == WHOLE
            assert len(groups) == (1 if size > len(content) or whole else len(PIECES) + 1)


class Dribble(io.BytesIO):
    """Gives a few bytes at a time."""

    def __init__(self, content, size):
        super().__init__(content)
        self.size = size

    def read1(self, size=-1, /):
        return super().read1(min(size, self.size))


def texts_of(blocks):
    """All text, and the error behind it."""
    text = b""
    try:
        for block in blocks:
            text += block.array[block.first : block.stop].tobytes()
    except Exception as error:
        return text, repr(error)
    return text, None


def found(content, room=1 << 19, size=1 << 20, *, whole=True):
    return texts_of(_members(Dribble(content, size), room, whole=whole))


RNG = random.Random(31)
STEP = _READ_BYTES  # text that is decompressed at a time
TEXTS = {
    "nothing": b"",
    "a byte": b"a",
    "repeats": b"abc" * 1000,
    "random": RNG.randbytes(3000),
    "long": RNG.randbytes(3 * STEP + 17).translate(b"ACG\n" * 64),
    "whole steps": RNG.randbytes(2 * STEP).translate(b"ACG\n" * 64),
}


@pytest.mark.whole
@pytest.mark.parametrize(("level", "whole"), [(0, True), (6, True), (6, False)])
@pytest.mark.parametrize("text", TEXTS)
def test_any_room_and_any_piece(text, level, whole):
    text = TEXTS[text]
    short = len(text) < 5000
    member = gzip.compress(text, level)
    forms = {
        "one": member,
        "two": member + member,
        "empty ones": gzip.compress(b"") * 2 + member + gzip.compress(b""),
        "zeros": member + bytes(40) + member + bytes(3),
    }
    for room in (7, 1000, 1 << 19) if short else (STEP - 1, STEP, 1 << 20):
        for size in (1, 100, 1 << 20) if short else (7777, 1 << 20):
            for name, content in forms.items():
                expected = text * (1 + (name in ("two", "zeros"))), None
                assert found(content, room, size, whole=whole) == expected, (name, room, size)


def with_everything():
    """Two members, one with all fields that a header may have."""
    text = b"abc" * 90 + b"xyz" + RNG.randbytes(90)
    member = gzip.compress(text, mtime=0)
    header = member[:3] + b"\x1f" + member[4:10] + b"\x04\0abcdname\0comment\0"
    header += (zlib.crc32(header) & 0xFFFF).to_bytes(2, "little")
    return header + member[10:] + gzip.compress(text[::-1], mtime=0)


def test_cut_at_every_byte():
    content = with_everything()
    whole, error = found(content)
    assert error is None
    half = len(whole) // 2
    ends = {0, len(content) - len(gzip.compress(whole[half:], mtime=0))}
    for stop in range(len(content)):
        for size in (1, 3, 1 << 20):
            text, error = found(content[:stop], size=size)
            assert error == (None if stop in ends else repr(EOFError())), (stop, size)
            assert whole.startswith(text)


@pytest.mark.parametrize("change", [1, 0x80, 0xFF])
def test_every_byte_changed(change):
    """No damage gives other text without an error."""
    content = with_everything() + b"\0\0"
    whole = found(content)[0]
    errors = set()
    for at in range(len(content)):
        text, error = found(content[:at] + bytes([content[at] ^ change]) + content[at + 1 :])
        assert error is not None or text == whole, at
        errors.add(error)
    assert len(errors) > 5


@pytest.mark.parametrize("bytes_behind", [b"more", b"more than ten", b"\x1f", b"\0\x1f\x8b"])
def test_other_bytes_behind_a_member(bytes_behind):
    content = gzip.compress(TEXTS["repeats"]) + bytes_behind
    text, error = found(content)
    assert text == TEXTS["repeats"]
    assert error is not None


def test_text_in_front_of_damage():
    text = TEXTS["long"] * 3
    content = bytearray(gzip.compress(text))
    content[-6] ^= 1
    before, error = found(bytes(content), room=1 << 22)
    assert text.startswith(before)
    assert len(before) >= len(text) - STEP
    assert "Incorrect checksum" in error
    content[len(content) // 2] ^= 0x55
    before, error = found(bytes(content), room=1 << 22)
    assert len(before) > len(text) // 2 - 2 * STEP
    assert error is not None


def test_an_error_of_the_file_comes_behind_the_text():
    content = gzip.compress(TEXTS["long"])

    class Failing(Dribble):
        def read1(self, size=-1, /):
            if self.tell() > len(content) // 2:
                raise OSError(5, "no more")
            return super().read1(size)

    text, error = texts_of(_members(Failing(content, 1000), 1 << 20, whole=True))
    assert len(text) > len(TEXTS["long"]) // 3
    assert TEXTS["long"].startswith(text)
    assert error == repr(OSError(5, "no more"))


def test_a_pipe_is_not_waited_for():
    """Text comes as soon as its bytes have come, though the member goes on."""
    reading, writing = os.pipe()
    packer = zlib.compressobj(wbits=31)
    seen = []
    with os.fdopen(reading, "rb") as source, os.fdopen(writing, "wb", buffering=0) as sink:
        sink.write(packer.compress(b"first") + packer.flush(zlib.Z_SYNC_FLUSH))
        blocks = _members(RawFile(source), 1 << 19, whole=False)
        reader = threading.Thread(target=lambda: seen.append(texts_of([next(blocks)])), daemon=True)
        reader.start()
        reader.join(DEADLINE)
        assert seen == [(b"first", None)]
        sink.write(packer.compress(b"second") + packer.flush())
        sink.close()
        assert texts_of(blocks) == (b"second", None)


def test_each_function_can_be_missing():
    for name in INFLATE._functions:
        functions = [one if one != name else "gone" for one in INFLATE._functions]
        assert Borrowed("ISA-L inflate", "isal.igzip_lib", functions).missing == ["gone"]


@pytest.mark.parametrize("size", [0, 1, 100, 65_000, 1 << 16])
def test_blocks_of_any_size(size, inflating):
    texts = [RNG.randbytes(size % 60_000), b"", bytes(RNG.choices(b"ACGT", k=size)), b"end"]
    packed = b"".join(map(bgzf_block, texts))
    (group,) = bgzf.block_groups(io.BytesIO(packed), 1 << 20, whole=True)
    assert texts_of([bgzf.inflated(group)[1]]) == (b"".join(texts), None)


def test_damaged_blocks_are_left_to_others(inflating):
    """No group with a damaged block gives text."""
    good, text = bgzf_block(b"ACGT" * 20), bytes(RNG.choices(b"ACGT", k=300))
    one = bgzf_block(text)
    unseen = 0
    for at in range(10, len(one)):
        content = bytearray(one)
        content[at] ^= 0x11
        piece = np.frombuffer(good + bytes(content) + good, np.uint8)
        _, block = bgzf.inflated(piece)
        if block is not None:  # a byte that says nothing of the text
            assert texts_of([block]) == (b"ACGT" * 20 + text + b"ACGT" * 20, None)
            unseen += 1
    assert unseen <= 6
