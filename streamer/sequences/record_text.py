"""Records as they stand in their file, to be written again byte for byte."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamer.sequences.packed_names import PackedNames
from trie.cpu.jit import njit


class RecordText(NamedTuple):
    """text: uint8, with SLACK bytes more behind the records (``trie.cpu.text_scan``).

    places: int64[records, 3], where in it each record begins, its first line ends, and it ends. A
    line's own end belongs to the record, not to its first line.
    """

    text: NDArray[np.uint8]
    places: NDArray[np.int64]

    @property
    def fastq(self) -> bool:
        """Whether the records begin with @; there is one at least."""
        return bool(self.text[self.places[0, 0]] == ord("@"))


def taken(parts: Sequence[RecordText], chosen: NDArray[np.bool_]) -> NDArray[np.uint8]:
    """The chosen records, uint8; of several parts the first one of each, the second, and so on."""
    sizes = [(part.places[:, 2] - part.places[:, 0])[chosen] for part in parts]
    ends = np.cumsum(np.stack(sizes, axis=1).ravel()).reshape(-1, len(parts))
    out = np.empty(int(ends[-1, -1]) if ends.size else 0, np.uint8)
    for number, part in enumerate(parts):
        _copy(part.text, part.places, chosen, ends[:, number].copy(), out)
    return out


def first_apart(one: PackedNames, other: PackedNames) -> int:
    """The first place where two reads are not mates by their names; -1 if there is none.

    Mates have one name, or names that end in /1 and /2; any ASCII mark that is no letter or digit
    will do for the slash. The shorter sequence ends the comparison.
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
    """Neither a letter nor a digit; of ASCII."""
    letter = 0x61 <= byte | 0x20 <= 0x7A
    return not letter and not 0x30 <= byte <= 0x39 and byte < 0x80


@njit(cache=True, nogil=True)
def _copy(text, places, chosen, ends, out):
    """Copy the chosen records so that they end at ``ends``."""
    number = 0
    for record in range(len(places)):
        if chosen[record]:
            begin, stop = places[record, 0], places[record, 2]
            end = ends[number]
            out[end - (stop - begin) : end] = text[begin:stop]
            number += 1
