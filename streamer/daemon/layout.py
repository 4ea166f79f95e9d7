"""What there is to say about many batches, laid out as frames of the feed by one kernel.

Where all that matches has one target set, all that ``match``, ``mismatch`` and ``read`` say follows
from two bits a symbol. What is sent then lies in memory and nobody touches it any more:

    names read start end windows target                                           match
    names read start end windows                                                  mismatch
    names read length windows matches mismatches skipped best_target              read
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamer.daemon.layout_kernels import (
    COLUMNS,
    FRAMES,
    SPANS,
    TABLE,
    describe,
    lay_out_all,
)
from streamer.matching.result import BatchResult
from streamer.protocol.checksums import crc32_address
from streamer.protocol.transport.sending import Placed

Columns = dict[str, NDArray[Any]]

_DESCRIBED = {
    topic: [(name, kind.name) for name, kind in kinds.items()] for topic, kinds in COLUMNS.items()
}
_NUMBERS = {topic: number for number, topic in enumerate(COLUMNS)}
_FRAME_BYTES = 16


class LayoutSource(NamedTuple):
    """A batch to be laid out: ``result.sets`` is None.

    target: of every window that matches, -1 if there is none. names: of its reads, as they travel.
    """

    result: BatchResult
    target: int
    names: bytes


@dataclass(frozen=True, slots=True)
class _Group:
    """What one call of the kernel gave. address: of ``frames``. held: what it points to."""

    memory: NDArray[np.uint8]
    frames: NDArray[np.int64]
    address: int
    held: list[Any]
    intervals: bool


class Laid:
    """What there is to say about one batch of a group.

    windows, matches, skipped, reads_on_target: sums over its reads. target: as in ``LayoutSource``.
    rows: by topic; none of ``match`` and ``mismatch`` where intervals were not asked for.
    """

    __slots__ = (
        "_at",
        "_group",
        "_sums",
        "matches",
        "reads_on_target",
        "rows",
        "skipped",
        "target",
        "windows",
    )

    def __init__(self, group: _Group, at: int, source: LayoutSource, told: list[int]) -> None:
        self._group = group
        self._at = at
        self.target = source.target
        self.windows, self.matches, self.skipped, self.reads_on_target, hits, misses, *sums = told
        reads = source.result.batch.offsets.size - 1
        self.rows = {"match": hits, "mismatch": misses, "read": reads}
        self._sums = sums

    def has(self, topic: str) -> bool:
        """Whether the columns of a topic have been laid out."""
        return self._group.intervals or topic == "read"

    def columns(self, topic: str) -> Columns:
        """The columns of a topic: views of what is sent."""
        group, rows = self._group, self.rows[topic]
        first, stop = SPANS[topic]
        places = group.frames[self._at, first + 1 : stop, 0] - group.memory.ctypes.data
        return {
            name: np.frombuffer(group.memory, kind, rows, place)
            for (name, kind), place in zip(COLUMNS[topic].items(), places.tolist(), strict=True)
        }

    def described(self, topic: str) -> list[tuple[str, str, int]]:
        """The columns of a topic: name, type, rows."""
        rows = self.rows[topic]
        return [(name, kind, rows) for name, kind in _DESCRIBED[topic]]

    def checksum(self, topic: str) -> int:
        """CRC-32 of the frames of a topic; -1 if it was not computed."""
        return self._sums[_NUMBERS[topic]]

    def frames(self, topic: str) -> Placed:
        """The frames of a topic: the names of the reads, then the columns."""
        first, stop = SPANS[topic]
        address = self._group.address + (self._at * FRAMES + first) * _FRAME_BYTES
        return Placed(address, stop - first, self._group)


def lay_out(sources: Sequence[LayoutSource], *, intervals: bool) -> list[Laid]:
    """What there is to say about batches, of ``match`` and ``mismatch`` with ``intervals`` only."""
    held: list[Any] = []
    table = np.empty((len(sources), TABLE), np.int64)
    for at, (result, target, names) in enumerate(sources):
        arrays = (*result.found.bytes_of_bits, result.batch.offsets, np.frombuffer(names, np.uint8))
        describe(table, at, *arrays, result.k, int(result.only_set), target)
        held.append(arrays)
    memory, told, frames = lay_out_all(table, np.uint64(crc32_address()), intervals)
    group = _Group(memory, frames, frames.ctypes.data, held, intervals)
    return [
        Laid(group, at, source, numbers)
        for at, (source, numbers) in enumerate(zip(sources, told.tolist(), strict=True))
    ]
