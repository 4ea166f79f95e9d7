"""Whether a compressed file is whole, at every truncation."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import random

import pytest

from streamer.output.output_file import END_BLOCK
from streamer.watching.folder import has_end, may_grow
from tests.streamer.watching.kit import named, text_of

TEXT = text_of(named("r", 20)).encode()


def bgzf_block(data):
    """One block of BGZF (SAM specification 4.1)."""
    packed = bytearray(gzip.compress(data, mtime=0))
    packed[3] = 4
    size = len(packed) + 8
    return bytes(packed[:10] + b"\6\0BC\2\0" + (size - 1).to_bytes(2, "little") + packed[10:])


def zstd(data):
    from xopen import xopen

    file = io.BytesIO()
    with xopen(file, "wb", format="zst", threads=0) as packer:
        packer.write(data)
    return file.getvalue()


PACKED = {
    "gzip": gzip.compress(TEXT),
    "two members": gzip.compress(TEXT[:100]) + gzip.compress(TEXT[100:]),
    "bzip2": bz2.compress(TEXT),
    "xz": lzma.compress(TEXT),
    "zstd": zstd(TEXT),
}


@pytest.mark.parametrize("name", PACKED)
def test_every_truncation_is_seen(name):
    data = PACKED[name]
    whole = {0, len(data)}
    if name == "two members":
        # nothing tells that another one follows
        whole.add(len(gzip.compress(TEXT[:100])))
    for size in range(6, len(data) + 1):
        assert has_end(io.BytesIO(data[:size]), patient=False) == (size in whole), size


@pytest.mark.parametrize("name", ["gzip", "two members", "bzip2"])
@pytest.mark.parametrize("bytes_behind", [b"\n", b"more", b"more than ten bytes"])
def test_other_bytes_behind_the_end_leave_it_complete(name, bytes_behind):
    assert has_end(io.BytesIO(PACKED[name] + bytes_behind), patient=False)


def test_zstd_behind_a_frame_to_skip():
    data = b"\x50\x2a\x4d\x18\x04\0\0\0size" + PACKED["zstd"]
    for size in range(13, len(data) + 1):
        assert has_end(io.BytesIO(data[:size]), patient=False) == (size == len(data)), size


def test_bgzf_needs_its_end_block_unless_nothing_comes_for_long():
    blocks = bgzf_block(TEXT[:500]) + bgzf_block(TEXT[500:])
    assert gzip.decompress(blocks) == TEXT
    whole = blocks + END_BLOCK
    for size in range(20, len(whole)):
        assert not has_end(io.BytesIO(whole[:size]), patient=False)
    assert has_end(io.BytesIO(whole), patient=False)
    assert has_end(io.BytesIO(blocks), patient=True)
    assert not has_end(io.BytesIO(blocks[:-1]), patient=True)


def test_damage_is_for_the_reader_to_report():
    rng = random.Random(1)
    for data in PACKED.values():
        damaged = bytearray(data)
        damaged[rng.randrange(20, len(data))] ^= 255
        assert has_end(io.BytesIO(damaged), patient=False) in (True, False)
    assert has_end(io.BytesIO(TEXT), patient=False)


def test_only_plain_fastq_grows():
    assert may_grow(io.BytesIO(TEXT))
    assert may_grow(io.BytesIO(b"\n\n@r"))
    for data in (*PACKED.values(), b">r\nACGT\n", b"@HD\tVN:1.6\n", b"BAM\1", b""):
        assert not may_grow(io.BytesIO(data))
