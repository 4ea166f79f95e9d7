"""The patterns of a search, in the requested orientations, and its hits.

A method returns a hit as one uint64, a hit word, of which the columns of the result are made:

    63                36 35                  8 7         0
    [ start in chunk   ] [ pattern, strand   ] [ distance ]

pattern, strand: twice the number of the pattern, plus 1 for the reverse complement. Ascending hit
words are in row order: start (and so end, as all patterns have one length), pattern, ``+`` before
``-``. A chunk is part of a batch of concatenated texts; a window that spans two texts is not a hit
and is dropped here.
"""

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamer.batch.hits import DTYPES, Hits
from streamer.batch.records import Codes, NamedSequence, reverse_complement, signs_of
from streamer.errors import DataError, UsageError
from trie.cpu.jit import njit
from trie.cpu.threads import run_all, split_range
from trie.windows import read_at

START_SHIFT = 36
ID_SHIFT = 8

_PARALLEL_FROM = 1 << 16


@njit(cache=True, nogil=True, forceinline=True)
def hit_word(start, id_, distance):
    """Return the word of a hit; id_: already shifted."""
    return np.uint64(start) << np.uint64(START_SHIFT) | id_ | np.uint64(distance)


def columns(
    parts: Sequence[NDArray[np.uint64]],
    origin: int,
    offsets: NDArray[np.int64],
    length: int,
    threads: int,
) -> Hits:
    """Convert ascending hit words, with starts relative to symbol ``origin`` of a batch, to hits.

    offsets: int64[texts + 1], where the texts of the batch begin. length: of a pattern.
    """
    words = parts[0] if len(parts) == 1 else np.concatenate([np.empty(0, np.uint64), *parts])
    ranges = split_range(0, words.size, threads if words.size >= _PARALLEL_FROM else 1)
    shared = (origin, offsets, length)
    if offsets.size == 2:
        inside = [stop - first for first, stop in ranges]
    else:
        inside = run_all([partial(_count, words[a:b], *shared) for a, b in ranges], threads)
    places = np.concatenate([[0], np.cumsum(inside)]).astype(np.int64)
    total = int(places[-1])
    columns: dict[str, Any] = {name: np.empty(total, dtype) for name, dtype in DTYPES.items()}
    tasks = [
        partial(_fill, words[a:b], *shared, int(at), *columns.values())
        for (a, b), at in zip(ranges, places, strict=False)
    ]
    run_all(tasks, threads)
    return Hits(**columns)


@njit(cache=True, nogil=True)
def _count(words, origin, offsets, length):
    """Count the hits that lie in one text."""
    if words.size == 0:
        return 0
    text = read_at(offsets, origin + np.int64(words[0] >> np.uint64(START_SHIFT)))
    inside = 0
    for word in words:
        start = origin + np.int64(word >> np.uint64(START_SHIFT))
        while offsets[text + 1] <= start:
            text += 1
        inside += start + length <= offsets[text + 1]
    return inside


@njit(cache=True, nogil=True)
def _fill(
    words, origin, offsets, length, at, texts, starts, ends, distances, strands, patterns,
):  # fmt: skip
    """Write the columns of the hits that lie in one text, from row ``at`` on."""
    if words.size == 0:
        return
    text = read_at(offsets, origin + np.int64(words[0] >> np.uint64(START_SHIFT)))
    for word in words:
        start = origin + np.int64(word >> np.uint64(START_SHIFT))
        while offsets[text + 1] <= start:
            text += 1
        if start + length > offsets[text + 1]:
            continue
        start -= offsets[text]
        oriented = np.int64(word >> np.uint64(ID_SHIFT)) & ((1 << (START_SHIFT - ID_SHIFT)) - 1)
        texts[at] = text
        starts[at] = start
        ends[at] = start + length
        distances[at] = word & np.uint64((1 << ID_SHIFT) - 1)
        strands[at] = oriented & 1
        patterns[at] = oriented >> 1
        at += 1


MAX_LENGTH = 256
# so that 32 bits can count the hits of the smallest chunk even if everything matches
MAX_PATTERNS = 1 << 21


@dataclass(frozen=True, slots=True)
class Oriented:
    """The sequences to search for, left to right, in the order of a row's last columns.

    codes: uint8[searched, length] base codes. ids: uint32[searched], ascending: twice the number of
    the pattern, plus 1 for the reverse complement. k: mismatches allowed, below ``length``.
    """

    codes: NDArray[np.uint8]
    ids: NDArray[np.uint32]
    k: int

    def __len__(self) -> int:
        return self.ids.size

    @property
    def length(self) -> int:
        """The length of the patterns."""
        return self.codes.shape[1]

    @property
    def ids_in_place(self) -> NDArray[np.uint64]:
        """Return the ids shifted as in a hit word."""
        return self.ids.astype(np.uint64) << np.uint64(ID_SHIFT)


def orient(patterns: Sequence[NamedSequence], k: int, strands: str, *, source: str) -> Oriented:
    """Prepare the patterns to search for on ``strands`` (forward, reverse, both).

    k: mismatches allowed. Raises UsageError for invalid options; DataError, which names ``source``
    and the pattern, if there are no patterns, or one is empty, longer than MAX_LENGTH, not longer
    than k, or of a different length than the first.
    """
    k = operator.index(k)  # accepts NumPy integers
    if k < 0:
        raise UsageError(f"-k {k}: mismatches are counted from 0")
    signs = signs_of(strands)
    if not patterns:
        raise DataError("no patterns", file=source)
    if len(patterns) > MAX_PATTERNS:
        raise DataError(
            f"{len(patterns):,} patterns; one search takes {MAX_PATTERNS:,}", file=source
        )
    length = patterns[0].codes.size
    for number, pattern in enumerate(patterns, start=1):
        wrong = _problem(pattern.codes, patterns[0], k)
        if wrong:
            raise DataError(wrong, file=source, record=number, name=pattern.name)
    forward = np.concatenate([pattern.codes for pattern in patterns]).reshape(-1, length)
    backward = reverse_complement(forward.ravel()).reshape(-1, length)[::-1]
    codes = np.stack([(forward, backward)[sign] for sign in signs], axis=1).reshape(-1, length)
    numbers = np.arange(len(patterns), dtype=np.uint32)[:, None] * np.uint32(2)
    return Oriented(codes, (numbers + np.array(signs, dtype=np.uint32)).ravel(), k)


def _problem(codes: Codes, first: NamedSequence, k: int) -> str | None:
    length = first.codes.size
    if not codes.size:
        return "an empty pattern"
    if codes.size != length:
        return (
            f"a pattern of {codes.size} symbols, the first ({first.name}) has {length}: "
            "all patterns of a search have one length"
        )
    if length > MAX_LENGTH:
        return f"a pattern of {length} symbols; at most {MAX_LENGTH} can be searched for"
    if k >= length:
        return (
            f"-k {k}: a pattern of {length} symbols would match everywhere; give k below {length}"
        )
    return None
