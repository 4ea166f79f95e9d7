"""Batches decoded together against ``decode_batch`` of each."""

from __future__ import annotations

import msgpack
import numpy as np
import pytest

from streamer.daemon.ingest import decode_batches
from streamer.matching.cuda import PackedReads, pack_batches
from streamer.protocol.header import WireError, crc32c_address, pack, seal, unseal
from streamer.protocol.payloads import decode_batch, encode_batch, encode_reads
from streamer.sequences.read_batch import ReadBatch

K = 5


def make(batches, sums):
    packed = pack_batches(batches, sums, K, threads=2)
    return [
        None if chunk is None else PackedReads(*batch, chunk)
        for batch, chunk in zip(batches, packed, strict=True)
    ]


def message(frames, **fields):
    """A header and all frames of its message, the last of which is their checksum."""
    header = {"form": "columns"} | fields
    return header, [memoryview(bytes(frame)) for frame in seal([pack(header), *frames])]


def each(header, frames):
    """What is decoded alone."""
    return decode_batch(header, unseal(frames)[1:])


def plain(rng, reads=None, alphabet="ACGTN"):
    lengths = rng.integers(0, 60, rng.integers(0, 9) if reads is None else reads)
    letters = ["".join(rng.choice(list(alphabet), n)) for n in lengths]
    return encode_reads([(f"read{i}", text) for i, text in enumerate(letters)])


def same(found, wanted):
    batch, names = found
    other, other_names = wanted
    assert names == other_names
    assert list(batch.names) == list(other.names)
    assert batch.offsets.tolist() == other.offsets.tolist()
    for packed, expected in zip(batch.two_bits(), other.two_bits(), strict=True):
        assert packed.tolist() == expected.tolist()
    assert batch.bases.tolist() == other.bases.tolist()


def test_isa_l_is_found():
    assert crc32c_address()


def test_plain_batches_are_decoded_together():
    rng = np.random.default_rng(1)
    alphabets = "ACGTN", "ACGT", "acgTU", "ACGTTTTTTTTTTTTTTTTTTTTTTTTTR"
    messages = [message(plain(rng, alphabet=alphabets[i % 4])) for i in range(40)]
    large = ReadBatch(["a"], np.array([0, 70_000]), rng.integers(0, 5, 70_000).astype(np.uint8))
    messages.insert(7, message(encode_batch(large)))
    for found, (header, frames) in zip(decode_batches(messages, make), messages, strict=True):
        assert found is not None
        same(found, each(header, frames))
    assert decode_batches([], make) == []


def test_frames_that_are_not_aligned():
    header, frames = message(plain(np.random.default_rng(2), reads=6))
    moved = [memoryview(b"x" + bytes(frame))[1:] for frame in frames]
    (found,) = decode_batches([(header, moved)], make)
    assert found is not None
    same(found, each(header, frames))


@pytest.mark.parametrize("seed", range(20))
def test_what_is_damaged_is_left_to_be_told(seed):
    """Whatever is decoded is what decode_batch gives, and what it refuses is not."""
    rng = np.random.default_rng(seed)
    messages = []
    for _ in range(60):
        frames = [bytearray(frame) for frame in plain(rng, reads=int(rng.integers(1, 9)))]
        for _ in range(rng.integers(0, 3)):
            frame = frames[rng.integers(0, 3)]
            if rng.random() < 0.3:
                del frame[rng.integers(0, len(frame) + 1) :]
            elif frame:
                frame[rng.integers(0, len(frame))] = rng.integers(0, 256)
        if rng.random() < 0.1:
            frames = frames[: rng.integers(0, 3)]
        fields = {}
        if rng.random() < 0.1:
            fields["form"] = ["list", None, 3][rng.integers(0, 3)]
        header, frames = message(frames, **fields)
        if rng.random() < 0.3:
            odd = [b"", b"1234", b"123", bytes(frames[-1])[::-1], bytes(frames[-1]) + b"\0"]
            frames[-1] = memoryview(odd[rng.integers(0, len(odd))])
        messages.append((header, frames))
    # an empty batch, a name beyond ASCII, a frame of names that goes on
    messages.append(message([msgpack.packb([]), np.zeros(1, np.int64).tobytes(), b""]))
    messages.append(message(encode_reads([("naïve", "ACGT")])))
    messages.append(message([msgpack.packb(["a"]) + b"\xc0", np.array([0, 1]).tobytes(), b"A"]))
    for found, (header, frames) in zip(decode_batches(messages, make), messages, strict=True):
        try:
            wanted = each(header, frames)
        except WireError:
            assert found is None
        else:
            if found is not None:
                same(found, wanted)
