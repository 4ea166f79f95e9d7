"""Gzip by ISA-L's own functions: text and errors are those of isal, however bytes come and go."""

from __future__ import annotations

import gzip
import io
import os
import random
import threading
import zlib

import numpy as np
import pytest

from streamer.sequences import bgzf
from streamer.sequences.bgzf import INFLATE, STEP_BYTES
from streamer.sequences.decompression import GzipMembers, Members
from streamer.sequences.raw_file import RawFile
from tests.streamer.sequences.kit import bgzf_block
from tests.waiting import DEADLINE
from trie.cpu.borrowed import Borrowed


class Dribble(io.BytesIO):
    """Gives a few bytes at a time."""

    def __init__(self, content, size):
        super().__init__(content)
        self.size = size

    def readinto(self, buffer, /):
        return super().readinto(buffer[: self.size])


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
    return texts_of(GzipMembers(Dribble(content, size), whole=whole).blocks(room))


def wanted(content):
    members, text = Members(io.BufferedReader(io.BytesIO(content)), "gz"), b""
    try:
        while data := members.read1():
            text += data
    except Exception as error:
        return text, repr(error)
    return text, None


RNG = random.Random(31)
TEXTS = {
    "nothing": b"",
    "a byte": b"a",
    "repeats": b"abc" * 1000,
    "random": RNG.randbytes(3000),
    "long": bytes(RNG.choices(b"ACGT\n", k=3 * STEP_BYTES + 17)),
    "whole steps": bytes(RNG.choices(b"ACGT\n", k=2 * STEP_BYTES)),
}


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
    for room in (7, 1000, 1 << 19) if short else (STEP_BYTES - 1, STEP_BYTES, 1 << 20):
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
    whole = wanted(content)[0]
    for stop in range(len(content) + 1):
        text, error = wanted(content[:stop])
        assert found(content[:stop]) == (text, error), stop
        for size in (1, 3):
            # a piece can show a letter more
            more, same = found(content[:stop], size=size)
            assert same == error, (stop, size)
            assert more.startswith(text)
            assert whole.startswith(more)


@pytest.mark.parametrize("change", [1, 0x80, 0xFF])
def test_every_byte_changed(change):
    content = with_everything() + b"\0\0"
    errors = set()
    for at in range(len(content)):
        damaged = content[:at] + bytes([content[at] ^ change]) + content[at + 1 :]
        assert found(damaged) == wanted(damaged), at
        errors.add(found(damaged)[1])
    assert len(errors) > 5


@pytest.mark.parametrize("bytes_behind", [b"more", b"more than ten", b"\x1f", b"\0\x1f\x8b"])
def test_other_bytes_behind_a_member(bytes_behind):
    content = gzip.compress(TEXTS["repeats"]) + bytes_behind
    assert found(content) == wanted(content)
    assert found(content)[0] == TEXTS["repeats"]
    assert found(content)[1] is not None


def test_text_in_front_of_damage():
    text = TEXTS["long"] * 3
    content = bytearray(gzip.compress(text))
    content[-6] ^= 1
    before, error = found(bytes(content), room=1 << 22)
    assert text.startswith(before)
    assert len(before) >= len(text) - STEP_BYTES
    assert error == wanted(bytes(content))[1]
    content[len(content) // 2] ^= 0x55
    before, error = found(bytes(content), room=1 << 22)
    assert len(before) > len(text) // 2 - 2 * STEP_BYTES
    assert error is not None


def test_an_error_of_the_file_comes_behind_the_text():
    content = gzip.compress(TEXTS["long"])

    class Failing(Dribble):
        def readinto(self, buffer, /):
            if self.tell() > len(content) // 2:
                raise OSError(5, "no more")
            return super().readinto(buffer)

    text, error = texts_of(GzipMembers(Failing(content, 1000), whole=True).blocks(1 << 20))
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
        blocks = GzipMembers(RawFile(source), whole=False).blocks(1 << 19)
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
