"""Verbatim records, to be written again byte for byte."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamer.sequences.packed_names import PackedNames
from trie.cpu import array_pool
from trie.cpu.intrinsics import prefetch
from trie.cpu.jit import njit
from trie.cpu.text_scan import SLACK, copy_line

_AHEAD = 16  # records whose cache lines are prefetched


class Span(NamedTuple):
    """Parsed text[begin:stop], with the records up to number ``end`` that no earlier span has."""

    text: NDArray[np.uint8]
    begin: int
    stop: int
    end: int


class RecordText(NamedTuple):
    """Records in the blocks of text they were parsed from, none spread over two.

    spans: in order; SLACK bytes after each can be read (``trie.cpu.text_scan``). places:
    int64[records, 3]: where in its span's text each record begins, its first line ends, and the
    record ends. The line end belongs to the record, not to its first line.
    """

    spans: Sequence[Span]
    places: NDArray[np.int64]

    @property
    def fastq(self) -> bool:
        """Whether the records begin with @; there must be at least one."""
        text = next(span.text for span in self.spans if span.end)
        return bool(text[self.places[0, 0]] == ord("@"))

    def joined(self) -> RecordText:
        """Join the spans into one that begins with the first; copied if there are several."""
        if len(self.spans) == 1:
            return self
        text = np.concatenate(
            (*(span.text[span.begin : span.stop] for span in self.spans), np.zeros(SLACK, np.uint8))
        )
        places = self.places.copy()
        first = size = 0
        for span in self.spans:
            places[first : span.end] += size - span.begin
            first, size = span.end, size + span.stop - span.begin
        return RecordText([Span(text, 0, size, len(places))], places)

    def between(
        self, begin: int, end: int
    ) -> tuple[NDArray[np.uint8], NDArray[np.int64], NDArray[np.int64]]:
        """Return the bytes of each record from one of its ``places`` up to another.

        A text, and where each begins and ends in it; they are copied if there are several spans.
        """
        # contiguous: kernels would be compiled once more for a column
        firsts, stops = (np.ascontiguousarray(self.places[:, one]) for one in (begin, end))
        if len(self.spans) == 1:
            return self.spans[0].text, firsts, stops
        ends = np.cumsum(stops - firsts)
        out = array_pool.empty((int(ends[-1]) if ends.size else 0) + SLACK, np.uint8)
        first = 0
        for span in self.spans:
            _copy_between(span.text, self.places, begin, end, first, span.end, ends, out)
            first = span.end
        return out, ends - (stops - firsts), ends


def taken(parts: Sequence[RecordText], chosen: NDArray[np.bool_]) -> NDArray[np.uint8]:
    """Return the chosen records, uint8; those of several parts alternate."""
    ends = np.empty((len(parts), chosen.size), np.int64)
    out = array_pool.empty(_ends(tuple(part.places for part in parts), chosen, ends), np.uint8)
    for part, own in zip(parts, ends, strict=True):
        first = 0
        for span in part.spans:
            _copy(span.text, part.places, chosen, first, span.end, own, out)
            first = span.end
    return out


def first_apart(one: PackedNames, other: PackedNames) -> int:
    """Return the first index at which the names are not those of mates; -1 if there is none.

    Mates have the same name, or names that end in /1 and /2; any ASCII character other than a
    letter or digit may replace the slash. The shorter sequence ends the comparison.
    """
    return int(_first_apart(one.memory, one.bounds, other.memory, other.bounds))


@njit(cache=True, nogil=True)
def _first_apart(names, bounds, mates, mate_bounds):
    for place in range(min(len(bounds), len(mate_bounds))):
        first, stop = bounds[place]
        mate, mate_stop = mate_bounds[place]
        length = stop - first
        same = length == mate_stop - mate
        for i in range(length - 1):
            same = same and names[first + i] == mates[mate + i]
        if same and length and names[stop - 1] != mates[mate_stop - 1]:
            same = (
                length > 1
                and names[stop - 1] == 0x31
                and mates[mate_stop - 1] == 0x32
                and _is_mark(names[stop - 2])
            )
        if not same:
            return place
    return -1


@njit(cache=True, nogil=True)
def _is_mark(byte):
    """Return whether a byte is ASCII, but neither a letter nor a digit."""
    letter = 0x61 <= byte | 0x20 <= 0x7A
    return not letter and not 0x30 <= byte <= 0x39 and byte < 0x80


# keeps the GIL: releasing it takes longer than one step per record
@njit(cache=True)
def _ends(places, chosen, ends):
    """Compute where the chosen records end, interleaving parts: int64[parts, records].

    Returns where the last one ends.
    """
    end = np.int64(0)
    for record in range(chosen.size):
        for part in range(len(places)):
            if chosen[record]:
                end += places[part][record, 2] - places[part][record, 0]
            ends[part, record] = end
    return end


@njit(cache=True, nogil=True)
def _copy_between(text, places, begin, end, first, stop, ends, out):
    """Copy those parts of the records from ``first`` up to ``stop`` so that they end at ``ends``.

    What is written beyond one is overwritten by the next.
    """
    for record in range(first, stop):
        later = places[min(record + _AHEAD, stop - 1), begin]
        prefetch(text, later)
        prefetch(text, later + SLACK - 1)
        to = ends[record] - places[record, end]
        for at in range(places[record, begin], places[record, end], SLACK):
            copy_line(text, at, out, to + at)


@njit(cache=True, nogil=True)
def _copy(text, places, chosen, first, end, ends, out):
    """Copy the chosen records from ``first`` up to ``end`` so that they end at ``ends``."""
    for record in range(first, end):
        if not chosen[record]:
            continue
        begin, stop = places[record, 0], places[record, 2]
        to = ends[record] - stop
        if stop - begin < SLACK:
            for at in range(begin, stop):
                out[to + at] = text[at]
            continue
        last = stop - SLACK
        for at in range(begin, last, SLACK):
            copy_line(text, at, out, to + at)
        copy_line(text, last, out, to + last)
