"""Lays out the frames of ``match``, ``mismatch`` and ``read`` of a group of batches.

Two bits for each symbol, and the runs of windows with the same target set if there are several,
determine these topics. One kernel lays out all batches; each topic becomes frames in memory, the
names of the reads and then its columns, which are sent without a copy.

Without the GIL the kernel passes over the bits of all batches: it counts the starts of runs of
windows (an upper bound of the rows), allocates all columns, writes them in one pass, run by run,
and computes their checksums:

    names read start end windows target                                           match
    names read start end windows                                                  mismatch
    names read length windows matches mismatches skipped best_target              read
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

import numpy as np
from numba import carray  # type: ignore[attr-defined]
from numpy.typing import NDArray

from streamer.daemon.batch_record import Matched
from streamer.matching.events import best_targets, kept_zeros, runs, summarize
from streamer.matching.record_runs import NO_RUNS
from streamer.matching.reports import only_target
from streamer.protocol.checksum_kernels import continue_crc32c
from streamer.protocol.schema import TOPICS
from streamer.protocol.transport.frames import Placed
from streamer.protocol.wire import crc32c, crc32c_address
from trie.cpu.intrinsics import array_address, pointer, popcount, word_at
from trie.cpu.jit import njit
from trie.windows import NO_SET

# mypy: no-check-untyped-defs
# (kernels are typed by numba, by the arguments of their first call)


LAID_OUT = ("match", "mismatch", "read")
"""The topics, in the order of their frames."""

_WIDTHS = [[0, *(c.dtype.itemsize for c in TOPICS[name].columns)] for name in LAID_OUT]
_PARTS = list(pairwise(accumulate(map(len, _WIDTHS), initial=0)))
SPANS = dict(zip(LAID_OUT, _PARTS, strict=True))
"""By topic: the range of its frames among those of a batch, the names of the reads first."""
FRAMES = _PARTS[-1][1]

_MATCH, _MISMATCH, _READS = (first for first, _ in _PARTS)
# bytes of a row in each frame; 0 for names
_KERNEL_ROW_BYTES = tuple(width for widths in _WIDTHS for width in widths)

# columns of the kernel's input table
(
    _STARTS, _MATCHES, _BYTES, _OFFSETS, _COUNT, _K, _SET, _TARGET, _NAMES, _NAME_BYTES, _RUNS,
    _RUN_COUNT,
) = range(12)  # fmt: skip
TABLE = 12
# columns of its results
_WINDOWS, _HITS, _SKIPPED, _ON_TARGET, _HIT_ROWS, _MISS_ROWS, _CRCS = range(7)
_RESULTS = _CRCS + len(LAID_OUT)

_LINE = 64
_ONE = np.uint64(1)


@njit(cache=True)
def _describe(table, batch, starts, matches, offsets, names, by_run, k, default_set, target):
    """Put a batch into the table, in a tenth of the time that NumPy takes to give the addresses.

    starts, matches: uint8, at least eight bytes. by_run: int64[runs, 5], empty for one target set.
    """
    row = table[batch]
    row[_STARTS] = starts.ctypes.data
    row[_MATCHES] = matches.ctypes.data
    row[_BYTES] = starts.size
    row[_OFFSETS] = offsets.ctypes.data
    row[_COUNT] = offsets.size - 1
    row[_K] = k
    row[_SET] = default_set
    row[_TARGET] = target
    row[_NAMES] = names.ctypes.data
    row[_NAME_BYTES] = names.size
    row[_RUNS] = by_run.ctypes.data
    row[_RUN_COUNT] = len(by_run)


@njit(cache=True, nogil=True, inline="always")
def _at(address):
    return pointer(np.uint64(address))


@njit(cache=True, nogil=True)
def _count_runs(starts, matches):
    """Upper bounds of the matching and mismatching runs, as if all reads were one."""
    hit_runs = np.uint64(0)
    miss_runs = np.uint64(0)
    last = np.uint64(63)
    for at in range(8, starts.size - 7, 8):
        here = word_at(starts, at)
        word = word_at(matches, at)
        hit = here & word
        miss = here & ~word
        # the previous word is loaded again so that the loop vectorizes
        here = word_at(starts, at - 8) >> last
        word = word_at(matches, at - 8) >> last
        hit_runs += popcount(hit & ~((hit << _ONE) | (here & word)))
        miss_runs += popcount(miss & ~((miss << _ONE) | (here & ~word)))
    # in the first word, and after the last whole one, at most every other bit begins a run
    return np.int64(hit_runs) + 32 + 16, np.int64(miss_runs) + 32 + 16


@njit(cache=True, nogil=True)
def _column(memory, base, frame, kind):
    begin = frame[0] - base
    return memory[begin : begin + frame[1]].view(kind)


@njit(cache=True, nogil=True)
def _run_columns(memory, base, frames):
    return (
        _column(memory, base, frames[0], np.uint32),
        _column(memory, base, frames[1], np.int64),
        _column(memory, base, frames[2], np.int64),
        _column(memory, base, frames[3], np.int64),
    )


@njit(cache=True, nogil=True)
def _read_columns(memory, base, frames):
    return (
        _column(memory, base, frames[0], np.int64),
        _column(memory, base, frames[1], np.int64),
        _column(memory, base, frames[2], np.int64),
        _column(memory, base, frames[3], np.int64),
        _column(memory, base, frames[4], np.int64),
        _column(memory, base, frames[5], np.int32),
    )


@njit(cache=True, nogil=True)
def _places(table, frames, intervals):
    """Put the start and maximal size of each column into ``frames``; returns the bytes of all."""
    total = np.int64(0)
    for batch in range(table.shape[0]):
        row = table[batch]
        reads = row[_COUNT]
        hits = np.int64(0)
        misses = np.int64(0)
        if intervals:
            # a run may go on in the next read, and ``by_run`` cuts at both ends of its runs
            starts = carray(_at(row[_STARTS]), row[_BYTES], np.uint8)
            matches = carray(_at(row[_MATCHES]), row[_BYTES], np.uint8)
            hits, misses = _count_runs(starts, matches)
            hits += reads + 2 * row[_RUN_COUNT]
            misses += reads
        for frame in range(FRAMES):
            rows = hits if frame < _MISMATCH else misses if frame < _READS else reads
            frames[batch, frame, 0] = total
            frames[batch, frame, 1] = rows * _KERNEL_ROW_BYTES[frame]
            total += (rows * _KERNEL_ROW_BYTES[frame] + _LINE - 1) // _LINE * _LINE
    return total


@njit(cache=True, nogil=True)
def _checksums(crc, frames, sums):
    """Put into ``sums`` the checksum of each topic's frames of a batch; -1 if ``crc`` is 0."""
    names = np.uint32(0)
    if crc:
        names = continue_crc32c(crc, names, np.uint64(frames[_MATCH, 0]), frames[_MATCH, 1])
    for topic in range(3):
        first = _MATCH if topic == 0 else _MISMATCH if topic == 1 else _READS
        stop = _MISMATCH if topic == 0 else _READS if topic == 1 else FRAMES
        value = names
        if crc:
            for frame in range(first + 1, stop):
                value = continue_crc32c(crc, value, np.uint64(frames[frame, 0]), frames[frame, 1])
        sums[topic] = np.int64(value) if crc else -1


@njit(cache=True, nogil=True)
def lay_out_all(table, crc, intervals, set_starts, members, by_set, by_target):
    """Lay out all batches: the memory with all columns, the results of each batch, and its frames.

    table: int64[batches, TABLE], filled by ``_describe``. crc: ``crc32c_address``, or 0. The other
    arguments are for ``best_targets``, which has the last two as counts and tally. Returns
    uint8[bytes]; int64[batches, 9]: windows, matches, skipped windows, reads on target, rows of
    ``match`` and of ``mismatch``, a checksum for each topic; int64[batches, FRAMES, 2]: address and
    bytes of each frame.
    """
    batches = table.shape[0]
    counts = np.zeros((batches, _RESULTS), np.int64)
    no_targets, no_events = np.zeros(0, np.uint32), np.zeros(0, np.uint8)
    frames = np.empty((batches, FRAMES, 2), np.int64)
    memory = np.empty(_places(table, frames, intervals) + _LINE, np.uint8)
    base = np.int64(memory.ctypes.data)
    # each column begins at a cache line
    skip = -base & (_LINE - 1)
    for batch in range(batches):
        row = table[batch]
        mine = frames[batch]
        for frame in range(FRAMES):
            mine[frame, 0] += base + skip
        starts = carray(_at(row[_STARTS]), row[_BYTES], np.uint8)
        matches = carray(_at(row[_MATCHES]), row[_BYTES], np.uint8)
        offsets = carray(_at(row[_OFFSETS]), row[_COUNT] + 1, np.int64)
        by_run = carray(_at(row[_RUNS]), (row[_RUN_COUNT], np.int64(5)), np.int64)
        numbers = _column(memory, base, mine[_READS + 1], np.uint32)
        for read in range(row[_COUNT]):
            numbers[read] = read
        rows = _read_columns(memory, base, mine[_READS + 2 :])
        if intervals:
            targets = _column(memory, base, mine[_MATCH + 5], np.uint32)
            counted = runs(
                starts,
                matches,
                offsets,
                row[_K],
                by_run,
                np.uint32(row[_SET]),
                row[_TARGET],
                0,
                row[_COUNT],
                0,
                0,
                (*_run_columns(memory, base, mine[_MATCH + 1 :]), targets, no_events),
                (*_run_columns(memory, base, mine[_MISMATCH + 1 :]), no_targets, no_events),
                rows,
            )
            counts[batch, _HIT_ROWS] = counted[4]
            counts[batch, _MISS_ROWS] = counted[5]
        else:
            counted = summarize(
                starts, matches, offsets, row[_K], row[_TARGET], 0, row[_COUNT], rows[0][:0], rows
            )
        for at in range(3):
            counts[batch, at] = counted[at]
        if len(by_run):
            most = np.empty(row[_COUNT], np.int64)
            best_targets(
                by_run, offsets, set_starts, members, by_set, by_target, 0, row[_COUNT], rows[5],
                most,
            )  # fmt: skip
        counts[batch, _ON_TARGET] = (rows[5] >= 0).sum()
        for frame in range(FRAMES):
            if frame in (_MATCH, _MISMATCH, _READS):
                mine[frame, 0] = row[_NAMES]
                mine[frame, 1] = row[_NAME_BYTES]
            elif frame < _READS:
                rows_here = counted[4] if frame < _MISMATCH else counted[5]
                mine[frame, 1] = rows_here * _KERNEL_ROW_BYTES[frame] if intervals else 0
        _checksums(crc, mine, counts[batch, _CRCS:])
    return memory, counts, frames


_DESCRIBED = {name: [(c.name, c.type_name) for c in TOPICS[name].columns] for name in LAID_OUT}
_ROW_BYTES = {name: sum(c.dtype.itemsize for c in TOPICS[name].columns) for name in LAID_OUT}
_FRAME_BYTES = 16


class Sums(NamedTuple):
    """Totals of a batch: windows, matching ones, those with a gap code, and reads with a match."""

    windows: int
    matches: int
    skipped: int
    reads_on_target: int


@dataclass(frozen=True, slots=True)
class Laid:
    """The frames of one batch; without intervals there are none of ``match`` and ``mismatch``.

    sums: over its reads. name_bytes: size of the frame of names. rows, targets: by topic, its rows
    and the targets that they name, ascending. crcs: checksums by topic, in the order of LAID_OUT,
    -1 without ISA-L. address: that of the table of the frames' addresses and sizes. owner: keeps
    all memory alive.
    """

    sums: Sums
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
        address = self.address + first * _FRAME_BYTES
        placed = Placed(address, stop - first, self.size(topic), self.owner)
        crc = self.crcs[LAID_OUT.index(topic)]
        return placed, crc32c(placed.frames()) if crc < 0 else crc


def lay_out(group: Sequence[Matched], *, intervals: bool) -> list[Laid]:
    """The frames of each batch; those of ``match`` and ``mismatch`` only with ``intervals``.

    All were matched against one dictionary. A single thread processes 20 billion symbols a second
    of one target set, 10 of sixteen, and waking another takes as long as a million symbols.
    """
    if not group:
        return []
    table = np.empty((len(group), TABLE), np.int64)
    # the kernel gets addresses of the inputs; frames keep those of names
    inputs: list[Any] = []
    names = [np.frombuffer(matched.accepted.names, np.uint8) for matched in group]
    targets = group[0].dictionary.targets
    for at, matched in enumerate(group):
        result = matched.result
        cut = NO_RUNS if result.has_one_set else np.ascontiguousarray(result.runs)
        arrays = (*result.found.bytes_of_bits, result.batch.offsets, names[at], cut)
        only = int(result.default_set), only_target(result, targets)
        _describe(table, at, *arrays, result.k, *only)
        inputs.append(arrays)
    memory, counts, frames = lay_out_all(
        table, np.uint64(crc32c_address()), intervals, targets.starts, targets.members,
        kept_zeros("sets", len(targets)), kept_zeros("targets", len(targets.names)),
    )  # fmt: skip
    base = array_address(memory)
    laid: list[Laid] = []
    for at, (matched, numbers) in enumerate(zip(group, counts.tolist(), strict=True)):
        *sums, hits, misses, crc_match, crc_mismatch, crc_read = numbers
        totals = Sums(*sums)
        default_set, target = table[at, _SET : _TARGET + 1].tolist()
        named = {
            "match": [default_set] if hits and default_set != NO_SET else [],
            "read": [target] if totals.reads_on_target else [],
        }
        if not matched.result.has_one_set:
            for topic, kind, nothing in (("match", np.uint32, NO_SET), ("read", np.int32, -1)):
                address, size = frames[at, SPANS[topic][1] - 1].tolist()
                named[topic] = distinct(memory[address - base :][:size].view(kind), nothing)
        laid.append(
            Laid(
                totals,
                len(matched.accepted.names),
                {"match": hits, "mismatch": misses, "read": len(matched.result.batch)},
                named,
                [crc_match, crc_mismatch, crc_read],
                array_address(frames[at]),
                (memory, frames, names),
            )
        )
    return laid


def distinct(numbers: NDArray[Any], nothing: int | np.uint32) -> list[int]:
    """The distinct numbers except ``nothing``, ascending."""
    present = numbers[numbers != nothing]
    if not present.size:
        return []
    least, most = int(present.min()), int(present.max())
    # usually there is only one
    return [least] if least == most else np.unique(present).tolist()
