"""A reference text of two bits a base, and both of its strands compared 32 bases at a time.

    symbols    | PAD gaps | record | gap | record | ... | gap | record | PAD gaps |
    packed     four symbols a byte, the first lowest; a gap code as A; SLACK bytes after the last
    gaps       uint32[2n]: the start and the end of each run of gap codes, ascending
    blocks     uint32: a bit for each 256 symbols, whether they, or the next 31, contain a gap code,
               so that gaps are seldom looked for; then a word for each: the first run of gaps that
               ends behind their first symbol

A *place* is the index of a symbol. The other strand has places too, from ``size`` on: the reverse
complement of the symbols [p, q) is [2 size - q, 2 size - p). Reads are always compared forwards, so
both strands use the same loop. A text whose k-mers stand for themselves has no other strand.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from trie.codes import GAP, pack_codes
from trie.cpu.intrinsics import reversed_bits, trailing_zeros, word_at
from trie.cpu.jit import inner, njit
from trie.index.mers import reversed_pairs

PAD: Final = 64
"""Gap codes at both ends: a window of k symbols around any base of the text stays inside."""

MOST_SYMBOLS: Final = (1 << 32) - 4
"""Most symbols of a text, padding included: places are stored in 32 bits."""

_NEAR_BITS: Final = 10
ROWS_NEAR: Final = 1 << _NEAR_BITS
"""Places for which ``first_rows`` has one number."""

SLACK: Final = 2048
_NEAR: Final = 256
_FIRST: Final = 1 << 20  # bytes of a new text
_LOW_BITS: Final = np.uint64(0x5555555555555555)
_ALL: Final = np.uint64(0xFFFFFFFFFFFFFFFF)


class TextShape(NamedTuple):
    """size: symbols with padding. both: of both strands, or of the only one."""

    size: int
    both: int


class TooLongError(ValueError):
    """A text has more symbols than places can tell apart."""


class ReferenceText(NamedTuple):
    """packed, gaps, blocks: as above. starts: int64[records], the place where each begins."""

    packed: NDArray[np.uint8]
    gaps: NDArray[np.uint32]
    blocks: NDArray[np.uint32]
    starts: NDArray[np.int64]
    size: int

    @classmethod
    def of(cls, bases: NDArray[np.uint8], offsets: NDArray[np.int64]) -> ReferenceText:
        """The text of records: base codes, and int64[records + 1], where each begins."""
        builder = TextBuilder()
        builder.add(bases, offsets)
        return builder.finish()

    def shape(self, *, canonical: bool) -> TextShape:
        """The sizes, as kernels take them."""
        return TextShape(self.size, 2 * self.size if canonical else self.size)

    def equal_at(self, one: NDArray[Any], other: NDArray[Any], k: int) -> NDArray[np.bool_]:
        """Whether the k symbols at places of one array are those at places of another."""
        return codes_at_places(self.packed, one, k) == codes_at_places(self.packed, other, k)

    def windows(self, k: int) -> NDArray[np.int64]:
        """int64[records]: how many windows without a gap code each record has."""
        gaps = self.gaps.reshape(-1, 2).astype(np.int64)
        begins = gaps[:-1, 1]
        windows = np.maximum(gaps[1:, 0] - begins - k + 1, 0)
        record = np.maximum(records_at(self.starts, begins), 0)
        return np.bincount(
            record[windows > 0], windows[windows > 0], minlength=self.starts.size
        ).astype(np.int64)


def records_at(starts: NDArray[np.int64], places: NDArray[Any]) -> NDArray[np.int64]:
    """The record that each place lies in, by where the records begin."""
    return np.searchsorted(starts, places, side="right") - 1


class TextBuilder:
    """Packs records as they are read."""

    def __init__(self) -> None:
        self._packed = np.zeros(_FIRST, np.uint8)
        self._size = PAD - 1  # symbols so far; a gap precedes records
        self._gaps = [np.array([[0, self._size]])]
        self._starts: list[NDArray[np.int64]] = []

    def add(
        self, bases: NDArray[np.uint8], offsets: NDArray[np.int64], *, continues: bool = False
    ) -> None:
        """Add records; arguments and errors as in ``part``."""
        self.put(*self.part(bases, offsets, continues=continues)())

    def part(
        self, bases: NDArray[np.uint8], offsets: NDArray[np.int64], *, continues: bool = False
    ) -> Callable[[], tuple[int, NDArray[np.uint8], NDArray[np.int64]]]:
        """The work on the next records, to be done in any thread; ``put`` takes its results.

        bases: uint8 base codes, offsets: int64[records + 1]. continues: the first is the rest of
        the last. TooLongError if they are too many.
        """
        size = self._size
        added = bases.size + offsets.size - 1 - continues
        if size + added + PAD + 3 > MOST_SYMBOLS:
            raise TooLongError(
                f"an index holds at most {MOST_SYMBOLS:,} bases and records together"
            )
        starts = size + offsets[:-1] + np.arange(1, offsets.size) - continues
        self._starts.append(starts[int(continues) :])
        self._size += added
        return partial(_packed, bases, offsets, continues, size, added)

    def put(self, at: int, packed: NDArray[np.uint8], gaps: NDArray[np.int64]) -> None:
        """Take the results of a part, in their order: packed symbols from byte ``at`` on."""
        while at + packed.size + SLACK > self._packed.size:
            self._packed.resize(self._packed.size + self._packed.size // 2, refcheck=False)
        packed[:1] |= self._packed[at : at + 1]  # may have symbols of the part before
        self._packed[at : at + packed.size] = packed
        self._gaps.append(gaps)

    def finish(self) -> ReferenceText:
        """The text of all records."""
        size = (self._size + PAD + 3) // 4 * 4
        self._packed.resize(size // 4 + SLACK, refcheck=False)
        gaps = _joined(np.concatenate([*self._gaps, [[self._size, size]]]))
        starts = np.concatenate([np.empty(0, np.int64), *self._starts])
        table = gaps.astype(np.uint32).ravel()
        return ReferenceText(self._packed, table, _blocks(gaps, size), starts, size)


def _packed(
    bases: NDArray[np.uint8], offsets: NDArray[np.int64], continues: bool, first: int, added: int
) -> tuple[int, NDArray[np.uint8], NDArray[np.int64]]:
    before = first % 4
    codes = np.zeros(before + added, np.uint8)
    _separate(bases, offsets, continues, codes, before)
    packed, gaps = pack_codes(codes)
    return first // 4, packed, _runs(gaps + (first - before))


@njit(cache=True, nogil=True)
def _separate(bases, offsets, continues, codes, to):
    """Copy records to ``codes`` from index ``to`` on, a gap code before each new one."""
    for record in range(offsets.size - 1):
        if record > 0 or not continues:
            codes[to] = GAP
            to += 1
        for at in range(offsets[record], offsets[record + 1]):
            codes[to] = bases[at]
            to += 1


def _runs(places: NDArray[np.int64]) -> NDArray[np.int64]:
    """int64[n, 2]: start and end of the runs of ascending places."""
    starts = places[np.diff(places, prepend=-2) != 1]
    return np.column_stack((starts, places[np.diff(places, append=-2) != 1] + 1))


def _joined(runs: NDArray[np.int64]) -> NDArray[np.int64]:
    """The runs, those that touch as one."""
    apart = runs[1:, 0] != runs[:-1, 1]
    first, last = np.append(True, apart), np.append(apart, True)
    return np.column_stack((runs[first, 0], runs[last, 1]))


def block_words(size: int) -> int:
    """The words of ``ReferenceText.blocks`` for a text of that size."""
    return (size >> 13) + 1 + (size >> 8) + 1


def _blocks(gaps: NDArray[np.int64], size: int) -> NDArray[np.uint32]:
    number = (size >> 8) + 1
    begins = np.maximum(gaps[:, 0] - 31, 0) // _NEAR
    ends = (gaps[:, 1] - 1) // _NEAR + 1
    near = np.cumsum(
        np.bincount(begins, minlength=number + 1) - np.bincount(ends, minlength=number + 1)
    )
    bits = np.packbits(near[:number] > 0, bitorder="little")
    blocks = np.zeros(block_words(size), np.uint32)
    blocks.view(np.uint8)[: bits.size] = bits
    firsts = np.arange(0, size + 1, _NEAR)[:number]
    blocks[(size >> 13) + 1 :] = np.searchsorted(gaps[:, 1], firsts, side="right")
    return blocks


def first_rows(ends: NDArray[np.uint32], size: int) -> NDArray[np.uint32]:
    """For each ROWS_NEAR places of a text the first row that ends behind the first; then all rows.

    ends: uint32, ascending, of rows of places.
    """
    places = np.arange(0, size, ROWS_NEAR, dtype=np.uint32)
    return np.append(np.searchsorted(ends, places, side="right"), ends.size).astype(np.uint32)


@inner
def block_near(firsts, place):
    """The index in ``first_rows`` of a place."""
    return min(max(place, 0) >> _NEAR_BITS, firsts.size - 2)


@inner
def row_behind(ends, firsts, place):
    """The first row that ends behind a place, or their number; firsts: ``first_rows``, or empty."""
    row, stop = np.int64(0), ends.size
    if firsts.size:
        block = block_near(firsts, place)
        row = min(np.int64(firsts[block]), ends.size)
        stop = min(np.int64(firsts[block + 1]), ends.size)
    while row < stop:
        middle = (row + stop) >> 1
        if np.int64(ends[middle]) > place:
            stop = middle
        else:
            row = middle + 1
    return row


@inner
def first_gap(blocks, shape, place):
    """The index in ``gaps`` of the first run that may end after a place."""
    return 2 * np.int64(blocks[first_gap_word(shape, place)])


@inner
def first_gap_word(shape, place):
    """The word of ``blocks`` that ``first_gap`` reads."""
    return (shape.size >> 13) + 1 + (place >> 8)


@inner
def _ones(count):
    """uint64: the bits of that many symbols."""
    count = min(max(count, 0), 32)
    return (_ALL >> np.uint64(64 - 2 * count)) if count else np.uint64(0)


@inner
def _gaps_at(blocks, gaps, shape, first):
    """uint64: bit 2i is set where symbol first + i is a gap code, i < 32."""
    found = np.uint64(0)
    i = first_gap(blocks, shape, first)
    while i < gaps.size and np.int64(gaps[i]) < first + 32:
        found |= _ones(np.int64(gaps[i + 1]) - first) & ~_ones(np.int64(gaps[i]) - first)
        i += 2
    return found & _LOW_BITS


@inner
def symbols_at(text, place):
    """uint64: 32 symbols of the text, the first lowest."""
    shift = np.uint64(2 * (place & 3))
    low = np.uint64(word_at(text, place >> 2)) >> shift
    high = (np.uint64(word_at(text, (place >> 2) + 8)) << np.uint64(1)) << (np.uint64(63) - shift)
    return low | high


@inner
def unlike(text, blocks, gaps, shape, place, sixteens, at):
    """uint64: bit 2i is set where symbol at + i of a block differs from place + i, i < 32.

    All are set for a place outside of the text, which a damaged file may contain.
    """
    return _unlike(text, blocks, gaps, shape, place, place >= shape.size, sixteens, at)


@inner
def _unlike(text, blocks, gaps, shape, place, turned, sixteens, at):
    """``unlike``; turned: whether the place is on the other strand."""
    first = shape.both - 32 - place if turned else place
    if np.uint64(first) > np.uint64(shape.size - 32):
        return _LOW_BITS
    there = symbols_at(text, first)
    if turned:
        there = reversed_pairs(~there)
    here = np.uint64(sixteens[at]) | np.uint64(sixteens[at + 16]) << np.uint64(32)
    apart = here ^ there
    apart = (apart | apart >> np.uint64(1)) & _LOW_BITS
    if blocks[first >> 13] >> np.uint32((first >> 8) & 31) & np.uint32(1):
        found = _gaps_at(blocks, gaps, shape, first)
        apart |= np.uint64(reversed_bits(found)) >> np.uint64(1) if turned else found
    return apart


@inner
def _reach(text, blocks, gaps, shape, shift, turned, sixteens, at, limit):
    while at < limit:
        apart = _unlike(text, blocks, gaps, shape, at + shift, turned, sixteens, at)
        if apart != 0:
            return min(at + (np.int64(trailing_zeros(apart)) >> 1), limit)
        at += 32
    return limit


@inner
def reach(text, blocks, gaps, shape, shift, sixteens, at, limit):
    """The first symbol s of a block in [at, limit) that differs from place s + shift, or limit."""
    # a loop for each strand: LLVM would turn the symbols on both, and discard the result on one
    if at + shift >= shape.size:
        return _reach(text, blocks, gaps, shape, shift, True, sixteens, at, limit)
    return _reach(text, blocks, gaps, shape, shift, False, sixteens, at, limit)


@inner
def fill_from_text(text, first, size, sixteens):
    """The sixteens of ``size`` symbols of a text from place ``first`` on, 4 | first."""
    byte = first >> 2
    for at in range(0, size, 4):
        word = np.uint64(word_at(text, byte + (at >> 2)))
        sixteens[at] = np.uint32(word)
        sixteens[at + 1] = np.uint32(word >> np.uint64(2))
        sixteens[at + 2] = np.uint32(word >> np.uint64(4))
        sixteens[at + 3] = np.uint32(word >> np.uint64(6))


@njit(cache=True, nogil=True)
def codes_at_places(text, places, k):
    """uint64: the k-mer codes of the windows at those places of a packed text."""
    codes = np.zeros(places.size, dtype=np.uint64)
    for i in range(places.size):
        if np.int64(places[i]) > 4 * (text.size - SLACK):
            continue  # of a damaged file
        codes[i] = reversed_pairs(symbols_at(text, places[i])) >> np.uint64(64 - 2 * k)
    return codes


def gap_codes(text: ReferenceText, begin: int, end: int) -> NDArray[np.uint8]:
    """The base codes of the places [begin, end)."""
    first = begin // 4
    packed = text.packed[first : (end + 3) // 4]
    codes = (packed[:, None] >> np.array([0, 2, 4, 6], np.uint8) & np.uint8(3)).ravel()
    codes = codes.astype(np.uint8, copy=False)
    codes = codes[begin - 4 * first :][: end - begin]
    runs = text.gaps.reshape(-1, 2).astype(np.int64)
    for at in range(int(np.searchsorted(runs[:, 1], begin, side="right")), len(runs)):
        if runs[at, 0] >= end:
            break
        codes[max(int(runs[at, 0]) - begin, 0) : int(runs[at, 1]) - begin] = GAP
    return codes
