"""Lays out the frames of ``match``, ``mismatch`` and ``read`` of a group of batches.

If all matches of a batch have the same target set, two bits for each symbol determine these topics,
and one kernel lays out all such batches. The others are laid out from their reports. Either way a
topic becomes frames in memory, the names of the reads and then its columns, which are sent without
a copy.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamer.daemon.batch_record import Matched
from streamer.daemon.layout_kernels import (
    FRAMES,
    LAID_OUT,
    SPANS,
    TABLE,
    checksums,
    describe,
    lay_out_all,
)
from streamer.dictionary.targets import NO_SET
from streamer.matching import reports
from streamer.protocol.checksums import crc32c, crc32c_address
from streamer.protocol.schema import TOPICS
from streamer.protocol.transport.sending import Placed
from trie.cpu.intrinsics import array_address
from trie.cpu.threads import run_all, usable_cores

_DESCRIBED = {name: [(c.name, c.type_name) for c in TOPICS[name].columns] for name in LAID_OUT}
_ROW_BYTES = {name: sum(c.dtype.itemsize for c in TOPICS[name].columns) for name in LAID_OUT}
_FRAME_BYTES = 16
# for batches laid out from reports
_THREADS = 4
_PER_THREAD = 1 << 20


@dataclass(frozen=True, slots=True)
class Laid:
    """The frames of one batch; without intervals there are none of ``match`` and ``mismatch``.

    sums: over its reads. name_bytes: size of the frame of names. rows, targets: by topic, its rows
    and the targets that they name, ascending. crcs: checksums by topic, in the order of LAID_OUT,
    -1 without ISA-L. address: that of the table of the frames' addresses and sizes. owner: keeps
    all memory alive.
    """

    sums: reports.Sums
    name_bytes: int
    rows: dict[str, int]
    targets: dict[str, list[int]]
    crcs: list[int]
    address: int
    owner: Any

    def described(self, topic: str) -> list[tuple[str, str, int]]:
        """The columns of a topic: name, type, rows."""
        rows = self.rows[topic]
        return [(name, type_name, rows) for name, type_name in _DESCRIBED[topic]]

    def size(self, topic: str) -> int:
        """The bytes of a topic's frames."""
        return self.name_bytes + self.rows[topic] * _ROW_BYTES[topic]

    def frames(self, topic: str) -> tuple[Placed, int]:
        """The frames of a topic and their checksum."""
        first, stop = SPANS[topic]
        placed = Placed(self.address + first * _FRAME_BYTES, stop - first, self.owner)
        crc = self.crcs[LAID_OUT.index(topic)]
        return placed, crc32c(placed.frames()) if crc < 0 else crc


def lay_out(group: Sequence[Matched], *, intervals: bool) -> list[Laid]:
    """The frames of each batch; those of ``match`` and ``mismatch`` only with ``intervals``.

    A single thread lays out all batches with one target set: it processes 20 billion symbols a
    second, and waking another thread takes as long as a million symbols.
    """
    together = _lay_out_together([m for m in group if m.result.sets is None], intervals)
    others = [m for m in group if m.result.sets is not None]
    symbols = sum(m.result.batch.symbols for m in others)
    threads = min(_THREADS, usable_cores() // 2, symbols // _PER_THREAD)
    alone = iter(run_all([partial(_lay_out_reports, m, intervals) for m in others], threads))
    return [next(together if m.result.sets is None else alone) for m in group]


def _lay_out_together(group: Sequence[Matched], intervals: bool) -> Iterator[Laid]:
    if not group:
        return
    table = np.empty((len(group), TABLE), np.int64)
    inputs: list[Any] = []
    only: list[tuple[int, int]] = []
    for at, matched in enumerate(group):
        result, names = matched.result, np.frombuffer(matched.accepted.names, np.uint8)
        held, target = int(result.only_set), reports.only_target(result, matched.dictionary.targets)
        arrays = (*result.found.bytes_of_bits, result.batch.offsets, names)
        describe(table, at, *arrays, result.k, held, target)
        inputs.append(arrays)
        only.append((held, target))
    memory, counts, frames = lay_out_all(table, np.uint64(crc32c_address()), intervals)
    owner = (memory, frames, inputs)
    address = frames.ctypes.data
    for matched, (held, target), numbers in zip(group, only, counts.tolist(), strict=True):
        *sums, hits, misses, crc_match, crc_mismatch, crc_read = numbers
        found = reports.Sums(*sums)
        yield Laid(
            found,
            len(matched.accepted.names),
            {"match": hits, "mismatch": misses, "read": len(matched.result.batch)},
            {
                "match": [held] if hits and held != NO_SET else [],
                "read": [target] if found.reads_on_target else [],
            },
            [crc_match, crc_mismatch, crc_read],
            address,
            owner,
        )
        address += FRAMES * _FRAME_BYTES


def _lay_out_reports(matched: Matched, intervals: bool) -> Laid:
    result = matched.result
    summary, sums = reports.reads_and_sums(result, matched.dictionary.targets)
    hits, misses = reports.intervals_by_event(result) if intervals else ({}, {})
    names = np.frombuffer(matched.accepted.names, np.uint8)
    arrays: list[NDArray[Any]] = []
    for topic, columns in zip(LAID_OUT, (hits, misses, summary), strict=True):
        arrays.append(names)
        for column in TOPICS[topic].columns:
            arrays.append(np.ascontiguousarray(columns.get(column.name, ()), column.dtype))
    frames = np.array([(array_address(array), array.nbytes) for array in arrays], np.int64)
    crcs = np.empty(len(LAID_OUT), np.int64)
    checksums(np.uint64(crc32c_address()), frames, crcs)
    rows = {topic: arrays[SPANS[topic][0] + 1].size for topic in LAID_OUT}
    targets = {
        "match": distinct(hits["target"], NO_SET) if intervals else [],
        "read": distinct(summary["best_target"], -1),
    }
    return Laid(
        sums, names.size, rows, targets, crcs.tolist(), frames.ctypes.data, (arrays, frames)
    )


def distinct(numbers: NDArray[Any], nothing: int | np.uint32) -> list[int]:
    """The distinct numbers except ``nothing``, ascending."""
    present = numbers[numbers != nothing]
    if not present.size:
        return []
    least, most = int(present.min()), int(present.max())
    # usually there is only one
    return [least] if least == most else np.unique(present).tolist()
