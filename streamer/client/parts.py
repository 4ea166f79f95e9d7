"""Reads as batches that are small enough for the daemon."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from streamer.client.client_errors import TooLargeError
from streamer.client.core.producer import Batch
from streamer.protocol.batch_messages import (
    decode_batch,
    encode_batch,
    encode_reads,
    too_many_labels,
)
from streamer.protocol.checksums import crc32c
from streamer.protocol.header import Buffer, size_of
from streamer.sequences.packed_names import PackedNames
from streamer.sequences.read_batch import ReadBatch

_LETTERS = 2  # the frame of form columns

Pair = tuple[str, str | bytes]
Reads = Iterable[Pair]


Mark = Callable[[int], bytes]
"""Gives the mark of a batch from the number of reads up to its end."""


@dataclass(frozen=True, slots=True)
class EncodedBatch:
    """Reads encoded for the socket, so that several threads can encode for one producer.

    frames: of form columns. checksum: CRC-32C of all of them.
    """

    names: Sequence[str]
    frames: list[Buffer]
    checksum: int

    def __len__(self) -> int:
        return len(self.names)

    @property
    def symbols(self) -> int:
        """The number of letters."""
        return len(self.frames[_LETTERS])

    def decoded(self) -> ReadBatch:
        """The reads."""
        return decode_batch({"form": "columns"}, self.frames)[0]


def encoded(reads: ReadBatch) -> EncodedBatch | ReadBatch:
    """The reads encoded, or unchanged if their labels do not fit into one message."""
    if too_many_labels(reads.context):
        return reads
    return _encoded(reads.names, encode_batch(reads))


def _encoded(names: Sequence[str], frames: list[Buffer]) -> EncodedBatch:
    return EncodedBatch(names, frames, crc32c(frames))


def parts(
    reads: EncodedBatch | ReadBatch | Sequence[Pair],
    most: int,
    endpoint: str,
    mark: Mark = lambda _: b"",
) -> Iterator[Batch]:
    """Batches of at most ``most`` bytes; TooLargeError for a read that is larger by itself."""
    done = 0
    try:
        for batch in _parts(reads, most, endpoint):
            done += batch.reads
            batch.mark = mark(done)
            yield batch
    except TooLargeError as error:
        error.index = done
        raise


def _parts(
    reads: EncodedBatch | ReadBatch | Sequence[Pair], most: int, endpoint: str
) -> Iterator[Batch]:
    made: EncodedBatch | ReadBatch
    match reads:
        case EncodedBatch():
            made = reads
        case ReadBatch():
            made = encoded(reads)
        case _:
            made = _encoded([name for name, _ in reads], encode_reads(reads))
    if isinstance(made, EncodedBatch):
        size, count = size_of(made.frames), len(made)
        if size <= most:
            last = str(made.names[-1]) if count else None
            yield Batch(made.frames, size, made.checksum, count, last)
            return
        if count <= 1:
            raise TooLargeError(endpoint, str(made.names[0]), size, most)
    whole = reads.decoded() if isinstance(reads, EncodedBatch) else reads
    half = len(whole) // 2
    for part in _slice(whole, 0, half), _slice(whole, half, len(whole)):
        yield from _parts(part, most, endpoint)


def _slice(reads: ReadBatch | Sequence[Pair], start: int, stop: int) -> ReadBatch | Sequence[Pair]:
    return part_of(reads, start, stop) if isinstance(reads, ReadBatch) else reads[start:stop]


def part_of(reads: ReadBatch, start: int, stop: int) -> ReadBatch:
    """The reads from ``start`` to ``stop``, exclusive."""
    first, last = int(reads.offsets[start]), int(reads.offsets[stop])
    offsets = (reads.offsets[start : stop + 1] - first).astype(np.int64)
    names = reads.names
    part = names.part(start, stop) if isinstance(names, PackedNames) else names[start:stop]
    context = reads.context and reads.context.part(start, stop)
    return ReadBatch(part, offsets, reads.bases[first:last], context)
