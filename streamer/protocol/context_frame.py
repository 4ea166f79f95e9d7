"""The context of the reads of a batch as a frame: a msgpack map with a key for each known column.

Texts are a table of distinct texts and an index for each read, so a barcode costs four bytes a
read. ``BATCH_CONTEXT`` of ``streamer.protocol.schema`` lists the columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import msgpack
import numpy as np
from numpy.typing import NDArray

from streamer.protocol.header import Buffer, Reason, WireError, raw, unpack_frame
from streamer.protocol.schema import MAX_LABEL_BYTES, MAX_LABELS
from streamer.sequences.context import LabelColumn, ReadContext
from streamer.sequences.context_kernels import TIME_BYTES, check_times
from streamer.sequences.read_batch import ReadBatch

_LABELS = ("run", "barcode", "sample")
_MOST_CHANNEL = 0x7FFFFFFF


def encode_context(context: ReadContext | None) -> bytes | None:
    """The frame; None if nothing is known.

    Texts that are too long or too many are left out, as if unknown.
    """
    if context is None:
        return None
    columns: dict[str, Any] = {}
    if (context.channel >= 0).any():
        columns["channel"] = bytes(raw(context.channel))
    width = context.start_time.dtype.itemsize
    text = context.start_time.view(np.uint8).reshape(-1, width)
    if text.any():
        width = int(np.flatnonzero(text.any(axis=0))[-1]) + 1
        columns["start_time"] = [width, text[:, :width].tobytes()]
    for name in _LABELS:
        column: LabelColumn = getattr(context, name)
        column = column.of(lambda label: label if len(label.encode()) <= MAX_LABEL_BYTES else None)
        if len(column.labels) > MAX_LABELS:
            column = column.used()
        if (column.index >= 0).any():
            index = np.where(column.index < MAX_LABELS, column.index, -1).astype(np.int32)
            columns[name] = [list(column.labels[:MAX_LABELS]), bytes(raw(index))]
    return msgpack.packb(columns) if columns else None


def too_many_labels(context: ReadContext | None) -> bool:
    """Whether a column has too many texts for a frame; then send several batches."""
    columns = () if context is None else (context.run, context.barcode, context.sample)
    return any(len(c.labels) > MAX_LABELS and len(c.used().labels) > MAX_LABELS for c in columns)


def decode_context(frame: Buffer, reads: int) -> ReadContext:
    """The context of ``reads`` reads; WireError if it is invalid. Unknown keys are ignored."""
    columns = unpack_frame(frame, "the context")
    if not isinstance(columns, dict):
        raise _malformed(problem="the context must be a map")
    channel = np.full(reads, -1, np.int32)
    if "channel" in columns:
        channel = _numbers("channel", columns["channel"], reads, _MOST_CHANNEL)
    times = np.zeros((reads, TIME_BYTES), np.uint8)
    if "start_time" in columns:
        _take_times(columns["start_time"], times)
    labels = [
        _labels(name, columns[name], reads) if name in columns else LabelColumn.same(None, reads)
        for name in _LABELS
    ]
    return ReadContext(channel, times.view(f"S{TIME_BYTES}").reshape(-1), *labels)


def with_context(batch: ReadBatch, further: Sequence[Buffer]) -> ReadBatch:
    """The batch with the context in ``further``, if any; WireError as ``decode_context``."""
    return replace(batch, context=decode_context(further[0], len(batch))) if further else batch


def _take_times(column: Any, times: NDArray[np.uint8]) -> None:
    reads, most = times.shape
    match column:
        # a later producer may send more after these
        case [int(width), bytes(text), *_] if _fits(width, most) and len(text) == width * reads:
            given = np.frombuffer(text, np.uint8).reshape(reads, width)
        case _:
            problem = f"'start_time' of the context must be a width up to {most} and its bytes"
            raise _malformed(problem=problem)
    if (bad := int(check_times(given, times))) >= 0:
        problem = f"read {bad + 1}: 'start_time' of the context is not a time"
        raise _malformed(problem=problem, index=bad)


def _fits(width: int, most: int) -> bool:
    # True is an int, too
    return type(width) is int and 0 < width <= most


def _labels(name: str, column: Any, reads: int) -> LabelColumn:
    match column:
        case [list(labels), bytes(index), *_]:
            pass
        case _:
            raise _malformed(
                problem=f"'{name}' of the context must be an array of texts and indices"
            )
    fine = all(
        isinstance(label, str)
        and 0 < len(label.encode("utf-8", "surrogatepass")) <= MAX_LABEL_BYTES
        and label.isprintable()
        for label in labels
    )
    if len(labels) > MAX_LABELS or not fine:
        problem = f"{MAX_LABELS} printable texts of {MAX_LABEL_BYTES} bytes at most"
        raise _malformed(problem=f"'{name}' of the context must have {problem}")
    return LabelColumn(labels, _numbers(name, index, reads, len(labels) - 1))


def _numbers(name: str, data: Any, reads: int, most: int) -> NDArray[np.int32]:
    if not isinstance(data, bytes) or len(data) != 4 * reads:
        problem = f"'{name}' of the context must have 4 bytes for each of {reads} reads"
        raise _malformed(problem=problem)
    numbers = np.frombuffer(data, "<i4").astype(np.int32, copy=False)
    wrong = np.flatnonzero((numbers < -1) | (numbers > most))
    if wrong.size:
        index = int(wrong[0])
        problem = f"'{name}' of the context is {numbers[index]}, must be -1 to {most}"
        raise _malformed(problem=f"read {index + 1}: {problem}", index=index)
    return numbers


def _malformed(*, problem: str, index: int | None = None) -> WireError:
    return WireError(Reason.MALFORMED, problem, index=index)
