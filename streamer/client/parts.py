"""Reads as batches that are small enough for the daemon."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np

from streamer.client.account import Batch
from streamer.client.client_errors import DaemonError
from streamer.protocol.batch_messages import encode_batch, encode_reads
from streamer.protocol.checksums import crc32c
from streamer.protocol.context_frame import too_many_labels
from streamer.protocol.header import size_of
from streamer.sequences.packed_names import PackedNames
from streamer.sequences.read_batch import ReadBatch

Pair = tuple[str, str | bytes]
Reads = Iterable[Pair]


Mark = Callable[[int], bytes]
"""The mark of a batch, from the number of reads up to its end."""


def parts(
    reads: ReadBatch | Sequence[Pair], most: int, endpoint: str, mark: Mark = lambda _: b""
) -> Iterator[Batch]:
    """Batches of at most ``most`` bytes; DaemonError about a read that is too large by itself."""
    done = 0
    for batch in _parts(reads, most, endpoint):
        done += batch.reads
        batch.mark = mark(done)
        yield batch


def _parts(reads: ReadBatch | Sequence[Pair], most: int, endpoint: str) -> Iterator[Batch]:
    count = len(reads)
    if isinstance(reads, ReadBatch) and count > 1 and too_many_labels(reads.context):
        yield from _halves(reads, most, endpoint)
        return
    frames = encode_batch(reads) if isinstance(reads, ReadBatch) else encode_reads(reads)
    size = size_of(frames)
    if size <= most:
        yield Batch(frames, size, crc32c(frames), count, _name(reads, -1) if count else None)
        return
    if count <= 1:
        problem = f"read {_name(reads, 0)}: a message of {size} bytes exceeds {most} bytes"
        problem += " (ingest.max_batch_bytes)"
        raise DaemonError(endpoint, problem)
    yield from _halves(reads, most, endpoint)


def _halves(reads: ReadBatch | Sequence[Pair], most: int, endpoint: str) -> Iterator[Batch]:
    count = len(reads)
    for start, stop in ((0, count // 2), (count // 2, count)):
        yield from _parts(_slice(reads, start, stop), most, endpoint)


def _name(reads: ReadBatch | Sequence[Pair], index: int) -> str:
    return str(reads.names[index] if isinstance(reads, ReadBatch) else reads[index][0])


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
