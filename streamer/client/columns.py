"""What the columns of a message must be, so that whoever reads its rows can rely on them.

A checksum says that a message came as it was sent, not that it was sent as docs/protocol.md has it:
a column too short, an index to a name that is not there or a k-mer of more than k bases would come
out as wrong rows, or as an error far from its cause.
"""

# mypy: no-check-untyped-defs
# (kernels are typed by numba, by the arguments of their first call)

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamer.protocol.header import Reason, WireError
from streamer.protocol.schema import NO_TARGET
from trie.cpu.jit import njit

_INTERVALS = {"read": "uint32", "start": "int64", "end": "int64", "windows": "int64"}
_COUNTS = dict.fromkeys(("length", "windows", "matches", "mismatches", "skipped"), "int64")
_CHUNKS = dict.fromkeys(("chunk_base", "chunk_version", "chunk_words"), "int64")
_KINDS = {
    "match": _INTERVALS | {"target": "uint32"},
    "mismatch": _INTERVALS,
    "near": {
        "read": "uint32",
        "start": "int64",
        "end": "int64",
        "distance": "uint8",
        "strand": "uint8",
        "code": "uint64",
        "target": "uint32",
        "snapshot": "int64",
        "best": "uint8",
    },
    "ltb": {
        "read": "uint32",
        "end": "int64",
        "distances": "uint32",
        "depths": "uint32",
        "snapshot": "int64",
    },
    "delta": {"code": "uint64", "read": "uint32", "start": "int64"},
    "word": {"word": "uint64"} | _CHUNKS,
    "read": {"read": "uint32"} | _COUNTS | {"best_target": "int32"},
}
KINDS = {
    topic: {name: np.dtype(kind) for name, kind in kinds.items()} for topic, kinds in _KINDS.items()
}
"""By topic: the columns and their types."""

NO_BEST = -1

Columns = dict[str, NDArray[Any]]


def check_columns(
    topic: str, columns: Columns, *, reads: int, k: int, labels: Collection[int], limit: int
) -> None:
    """WireError unless they are the columns of the topic, and their rows such as there can be.

    reads: of the batch. labels: the targets that have a name. limit: of the distance, 0 without.
    """
    _check_kinds(topic, columns)
    bad = _first_bad(topic, columns, reads, k, limit)
    if bad >= 0:
        what = "chunk" if topic == "word" else "row"
        raise WireError(Reason.MALFORMED, f"{what} {bad + 1} cannot be: its numbers do not fit")
    name, none = ("best_target", NO_BEST) if topic == "read" else ("target", NO_TARGET)
    targets = columns.get(name)
    if targets is not None:
        _check_targets(name, targets, labels, none)


def _check_targets(name: str, targets: NDArray[Any], labels: Collection[int], none: int) -> None:
    if none in labels:
        raise WireError(Reason.MALFORMED, f"{name} {none} has a label, and stands for none")
    if len(labels) < 2:
        bad = _other(targets, next(iter(labels), none), none)
    else:
        bad = _unknown(targets, np.array(sorted(labels), dtype=np.int64), none)
    if bad >= 0:
        problem = f"row {bad + 1} of {name} is {targets[bad]}, which has no label"
        raise WireError(Reason.MALFORMED, problem)


def _check_kinds(topic: str, columns: Columns) -> None:
    kinds = KINDS[topic]
    found = {name: values.dtype for name, values in columns.items()}
    if found != kinds:
        held, right = (", ".join(f"{n} {t}" for n, t in of.items()) for of in (found, kinds))
        raise WireError(Reason.MALFORMED, f"its columns are {held or 'none'}, not {right}")
    # words are many a chunk
    rows = columns if topic != "word" else columns.keys() - {"word"}
    if len({columns[name].size for name in rows}) != 1:
        held = ", ".join(f"{name} {values.size}" for name, values in columns.items())
        raise WireError(Reason.MALFORMED, f"its columns differ in length: {held}")


def _first_bad(topic: str, columns: Columns, reads: int, k: int, limit: int) -> int:
    """The first row that cannot be, -1 if there is none; of words the first such chunk."""
    if topic == "word":
        return int(_chunks(columns["chunk_words"], columns["word"].size))
    read = columns["read"]
    if topic in ("match", "mismatch"):
        return int(_intervals(read, columns["start"], columns["end"], columns["windows"], reads, k))
    if topic == "read":
        length, windows, matches, mismatches, skipped = (columns[name] for name in _COUNTS)
        return int(_summaries(read, length, windows, matches, mismatches, skipped, reads, k))
    if topic == "ltb":
        return int(_positions(read, columns["end"], reads))
    if topic == "delta":
        return int(_kmers(columns["code"], read, columns["start"], reads, k))
    start, end, distance, strand, code, best = (
        columns[name] for name in ("start", "end", "distance", "strand", "code", "best")
    )
    return int(_near(read, start, end, distance, strand, code, best, reads, k, limit))


# Kernels that tell the first row that cannot be, -1 if there is none. They are so short that giving
# up the interpreter's lock takes longer. All rows are looked at together, many in one step, and one
# by one only if something is wrong.


@njit(cache=True, inline="always")
def _is_run(read, start, end, windows, reads, k):
    """Whether windows of a read end with the last of them."""
    inside = (read < reads) & (start >= 0) & (windows > 0) & (end >= k)
    return inside & (end - k - windows + 1 == start)


@njit(cache=True)
def _intervals(read, start, end, windows, reads, k):
    fine = True
    for i in range(read.size):
        fine &= _is_run(read[i], start[i], end[i], windows[i], reads, k)
    if fine:
        return -1
    for i in range(read.size):
        if not _is_run(read[i], start[i], end[i], windows[i], reads, k):
            return i
    return -1


@njit(cache=True, inline="always")
def _is_summary(read, length, windows, matches, mismatches, skipped, reads, k):
    """Whether the windows of a read match, do not, or are skipped."""
    inside = (read < reads) & (length >= 0) & (windows >= 0) & (skipped >= 0)
    inside &= (matches >= 0) & (mismatches >= 0) & (windows - mismatches == matches)
    return inside & (max(length - k + 1, 0) - windows == skipped)


@njit(cache=True)
def _summaries(read, length, windows, matches, mismatches, skipped, reads, k):
    fine = True
    for i in range(read.size):
        fine &= _is_summary(
            read[i], length[i], windows[i], matches[i], mismatches[i], skipped[i], reads, k
        )
    if fine:
        return -1
    for i in range(read.size):
        if not _is_summary(
            read[i], length[i], windows[i], matches[i], mismatches[i], skipped[i], reads, k
        ):
            return i
    return -1


@njit(cache=True)
def _near(read, start, end, distance, strand, code, best, reads, k, limit):
    for i in range(read.size):
        inside = (read[i] < reads) & (start[i] >= 0) & (start[i] <= end[i])
        fine = (distance[i] <= limit) & (strand[i] <= 1) & (best[i] <= 1)
        if not inside or not fine or code[i] >> np.uint64(2 * k):
            return i
    return -1


@njit(cache=True)
def _positions(read, position, reads):
    for i in range(read.size):
        if read[i] >= reads or position[i] < 0:
            return i
    return -1


@njit(cache=True)
def _kmers(code, read, start, reads, k):
    for i in range(code.size):
        if read[i] >= reads or start[i] < 0 or code[i] >> np.uint64(2 * k):
            return i
    return -1


@njit(cache=True)
def _chunks(chunk_words, words):
    """All words are those of one chunk."""
    for i in range(chunk_words.size):
        if not 0 <= chunk_words[i] <= words:
            return i
        words -= chunk_words[i]
    return chunk_words.size if words else -1


@njit(cache=True)
def _other(values, only, none):
    fine = True
    for i in range(values.size):
        fine &= (values[i] == only) | (values[i] == none)
    if fine:
        return -1
    for i in range(values.size):
        if values[i] != only and values[i] != none:
            return i
    return -1


@njit(cache=True)
def _unknown(values, known, none):
    """``known``: ascending."""
    last = np.int64(none)
    for i in range(values.size):
        value = np.int64(values[i])
        if value != last and value != none:
            at = np.searchsorted(known, value)
            if at == known.size or known[at] != value:
                return i
            last = value
    return -1
