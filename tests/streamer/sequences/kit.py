"""Files to read, content handed to the reader a few bytes at a time, and what it makes of it."""

from __future__ import annotations

import io
import struct
import zlib
from itertools import pairwise

from xopen import xopen

from streamer.errors import DataError
from streamer.sequences import raw_file, source


class InBlocks:
    """From now on files are read as ``content``, in blocks of ``size`` bytes with some ``room``."""

    def __init__(self, monkeypatch):
        self._patch = monkeypatch

    def __call__(self, content, size, room=None):
        self._patch.setattr(raw_file, "ROOM_BYTES", size // 2 if room is None else room)

        def blocks(_):
            for at in range(0, len(content), size):
                part = content[at : at + size]
                block = raw_file.new_block(len(part))
                block.array[:] = 10  # what is behind a block must not count
                block.array.data[block.first : block.stop] = part
                yield block

        self._patch.setattr(source.SequenceSource, "_blocks", blocks)


def set_sizes(monkeypatch, region, block):
    """From now on regions that are parsed side by side and blocks of text have so many bytes."""
    monkeypatch.setattr(raw_file, "REGION_BYTES", region)
    monkeypatch.setattr(raw_file, "BLOCK_BYTES", block)


def rows_of(batch):
    """(name, codes) of every read."""
    codes = batch.bases.tobytes()
    lengths = pairwise(batch.offsets.tolist())
    return [(name, codes[a:b]) for name, (a, b) in zip(batch.names, lengths, strict=True)]


def outcome(batches):
    """The rows of every batch, then the error as users see it."""
    found = []
    try:
        for batch in batches:
            found.append(rows_of(batch))
    except DataError as error:
        found.append(str(error))
    return found


def bam_of(records):
    """An unaligned BAM file (SAM specification 4.2), uncompressed."""
    nibble = {c: i for i, c in enumerate("=ACMGRSVTWYHKDBN")}
    out = io.BytesIO()
    out.write(b"BAM\x01" + struct.pack("<i", 0) + struct.pack("<i", 0))
    for name, sequence in records:
        codes = [nibble[c] for c in sequence.upper().replace("U", "T")]
        codes += [0] * (len(codes) % 2)
        packed = bytes(a << 4 | b for a, b in zip(codes[::2], codes[1::2], strict=True))
        body = struct.pack(
            "<iiBBHHHiiii", -1, -1, len(name) + 1, 0, 4680, 0, 4, len(sequence), -1, -1, 0
        )
        body += name.encode() + b"\0" + packed + b"\xff" * len(sequence)
        out.write(struct.pack("<i", len(body)) + body)
    return out.getvalue()


def zstd(data):
    file = io.BytesIO()
    with xopen(file, "wb", format="zst", threads=0) as packer:
        packer.write(data)
    return file.getvalue()


def bgzf_block(data):
    """One block of BGZF (SAM specification 4.1)."""
    deflate = zlib.compressobj(wbits=-15)
    packed = deflate.compress(data) + deflate.flush()
    extra = struct.pack("<2sHH", b"BC", 2, len(packed) + 25)
    head = struct.pack("<4BI2BH", 0x1F, 0x8B, 8, 4, 0, 0, 255, len(extra))
    return head + extra + packed + struct.pack("<2I", zlib.crc32(data), len(data))


def bgzf_blocks(whole, *cuts):
    """The data as blocks, cut at these places, without the end block."""
    places = [0, *cuts, len(whole)]
    return [bgzf_block(whole[a:b]) for a, b in zip(places, places[1:], strict=False)]
