"""Checks the columns of a message, so that readers can rely on every row.

A checksum shows that a message arrived as it was sent, not that it follows docs/protocol.md: a
short column, an index without a name or a k-mer of more than k bases would lead to wrong rows, or
to an error far from its cause.
"""

# mypy: no-check-untyped-defs
# (kernels are typed by numba, by the arguments of their first call)

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamer.protocol.feed_messages import Columns
from streamer.protocol.header import Reason, WireError
from streamer.protocol.schema import BATCH_TOPICS, NO_BEST_TARGET, NO_TARGET, Topic
from trie.cpu.jit import njit

_DTYPES = {name: {c.name: c.dtype for c in topic.columns} for name, topic in BATCH_TOPICS.items()}

_SIZES = {
    name: [
        [c.name for c in topic.columns if c.per_chunk == per_chunk] for per_chunk in (False, True)
    ]
    for name, topic in BATCH_TOPICS.items()
}
"""By topic: groups of columns of equal length, those of rows and those of chunks."""


def check_columns(
    topic: Topic, columns: Columns, *, reads: int, k: int, known: Collection[int], limit: int
) -> None:
    """WireError unless these are the columns of the topic and every row is consistent.

    reads: how many the batch has. known: the numbers of the sets, or of the targets, that the
    header names. limit: that of the distance, 0 without one.
    """
    _check_dtypes(topic, columns)
    values = tuple(columns[column.name] for column in topic.columns)
    if topic.name == "word":
        bad, what = int(_first_bad_chunk(columns["chunk_words"], columns["word"].size)), "chunk"
    else:
        bad, what = _first_bad(_CHECKS[topic.name], values, reads, k, limit), "row"
    if bad >= 0:
        raise WireError(Reason.MALFORMED, f"{what} {bad + 1} has inconsistent values")
    for name, none in (("target", NO_TARGET), ("best_target", NO_BEST_TARGET)):
        if name in columns:
            check_numbers(name, columns[name], known, none)


def _check_dtypes(topic: Topic, columns: Columns) -> None:
    found = {name: values.dtype for name, values in columns.items()}
    wanted = _DTYPES[topic.name]
    if found != wanted:
        given, right = (", ".join(f"{n} {t}" for n, t in of.items()) for of in (found, wanted))
        raise WireError(Reason.MALFORMED, f"its columns are {given or 'none'}, not {right}")
    for names in _SIZES[topic.name]:
        sizes = {columns[name].size for name in names}
        if len(sizes) > 1:
            given = ", ".join(f"{name} {values.size}" for name, values in columns.items())
            raise WireError(Reason.MALFORMED, f"its columns differ in length: {given}")


def optional_columns(topic: Topic, columns: Columns, rows: int) -> Columns:
    """The optional columns of a topic, filled with -1 if a message lacks them; or a WireError."""
    found = {}
    for column in topic.optional:
        values = columns.get(column.name)
        if values is None:
            values = np.full(rows, -1, column.dtype)
        if values.dtype != column.dtype or values.size != rows:
            given = f"{values.size} values of {values.dtype}"
            problem = f"column '{column.name}' has {given}, not {rows} of {column.type_name}"
            raise WireError(Reason.MALFORMED, problem)
        if rows and values.min() < -1:
            raise WireError(Reason.MALFORMED, f"column '{column.name}' has numbers below -1")
        found[column.name] = values
    return found


def check_numbers(name: str, targets: NDArray[Any], known: Collection[int], none: int) -> None:
    """WireError unless every number of the column is ``none`` or one of ``known``."""
    if none in known:
        raise WireError(Reason.MALFORMED, f"{name} {none} is named, but is reserved for none")
    numbers = np.array(sorted(known) or [none], dtype=np.int64)
    bad = _first_bad(_are_known, (targets,), numbers, none)
    if bad >= 0:
        problem = f"row {bad + 1} of {name} is {targets[bad]}, which is not named"
        raise WireError(Reason.MALFORMED, problem)


def _first_bad(
    fine: Callable[..., bool], columns: tuple[NDArray[Any], ...], *limits: object
) -> int:
    """The index of the first row that is not ``fine``, -1 if all are."""
    if fine(*columns, *limits):
        return -1
    return bisect_left(
        range(columns[0].size),
        True,
        key=lambda row: not fine(*(values[: row + 1] for values in columns), *limits),
    )


# Kernels that check whether all rows are consistent. They take the columns of a topic, then the
# number of reads, k and the limit of the distance. They check all rows without a branch, so that
# SIMD handles many at once; they are so short that releasing the GIL would take longer.


@njit(cache=True)
def _are_runs(read, start, end, windows, reads, k, _limit):
    fine = True
    for i in range(read.size):
        fine &= (read[i] < reads) & (start[i] >= 0) & (windows[i] > 0) & (end[i] >= k)
        fine &= end[i] - k - windows[i] + 1 == start[i]
    return fine


@njit(cache=True)
def _are_runs_with_target(read, start, end, windows, _target, reads, k, limit):
    return _are_runs(read, start, end, windows, reads, k, limit)


@njit(cache=True)
def _are_summaries(
    read, length, windows, matches, mismatches, skipped, _best_target, reads, k, _limit
):
    """Whether the windows of every read are its matches, mismatches and skipped windows."""
    fine = True
    for i in range(read.size):
        fine &= (read[i] < reads) & (length[i] >= 0) & (windows[i] >= 0) & (skipped[i] >= 0)
        fine &= (matches[i] >= 0) & (mismatches[i] >= 0)
        fine &= windows[i] - mismatches[i] == matches[i]
        fine &= max(length[i] - k + 1, 0) - windows[i] == skipped[i]
    return fine


@njit(cache=True)
def _are_near(read, start, end, distance, strand, code, _target, _snapshot, best, reads, k, limit):
    fine = True
    for i in range(read.size):
        fine &= (read[i] < reads) & (start[i] >= 0) & (start[i] <= end[i])
        fine &= (distance[i] <= limit) & (strand[i] <= 1) & (best[i] <= 1)
        fine &= code[i] >> np.uint64(2 * k) == 0
    return fine


@njit(cache=True)
def _are_ends(read, end, _distances, _depths, _snapshot, reads, _k, _limit):
    fine = True
    for i in range(read.size):
        fine &= (read[i] < reads) & (end[i] >= 0)
    return fine


@njit(cache=True)
def _are_reads(read, reads, _k, _limit):
    fine = True
    for i in range(read.size):
        fine &= read[i] < reads
    return fine


@njit(cache=True)
def _are_decisions(
    read, channel, _barcode, action, _target, matches, windows, bases, reads, _k, _limit
):
    fine = True
    for i in range(read.size):
        fine &= (read[i] < reads) & (channel[i] >= -1) & (action[i] <= 2) & (matches[i] >= 0)
        fine &= (matches[i] <= windows[i]) & (windows[i] <= bases[i])
    return fine


@njit(cache=True)
def _are_kmers(code, read, start, reads, k, _limit):
    fine = True
    for i in range(code.size):
        fine &= (read[i] < reads) & (start[i] >= 0) & (code[i] >> np.uint64(2 * k) == 0)
    return fine


_CHECKS: dict[str, Callable[..., bool]] = {
    "match": _are_runs_with_target,
    "mismatch": _are_runs,
    "near": _are_near,
    "ltb": _are_ends,
    "delta": _are_kmers,
    "read": _are_summaries,
    "decision": _are_decisions,
    "retract": _are_reads,
}


@njit(cache=True)
def _first_bad_chunk(chunk_words, words):
    """-1 if every word belongs to one chunk, else the index of a bad chunk."""
    for i in range(chunk_words.size):
        if not 0 <= chunk_words[i] <= words:
            return i
        words -= chunk_words[i]
    return chunk_words.size if words else -1


@njit(cache=True)
def _are_known(values, known, none):
    """Whether each value is ``none`` or one of the ascending ``known``, usually a single one."""
    fine = True
    first = known[0]
    for i in range(values.size):
        fine &= (values[i] == first) | (values[i] == none)
    if fine or known.size == 1:
        return fine
    last = np.int64(none)
    for i in range(values.size):
        value = np.int64(values[i])
        if value != last and value != none:
            at = np.searchsorted(known, value)
            if at == known.size or known[at] != value:
                return False
            last = value
    return True
