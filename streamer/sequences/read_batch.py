"""A batch of reads in columns: names, offsets and one array of base codes.

Names are a msgpack array of strings, which is decoded only on demand.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, overload

import msgpack
import numpy as np
from numpy.typing import NDArray

from streamer.sequences.context import ReadContext
from trie.codes import InvalidBaseError, encode, pack_codes, shown_byte
from trie.cpu import array_pool
from trie.cpu.intrinsics import put_word, trailing_zeros, word_at
from trie.cpu.jit import inner, njit
from trie.cpu.threads import run_each
from trie.cpu.vectors import outside

_SHARED = 1 << 22  # bases from which a second copying thread pays

Letters = bytes | memoryview | NDArray[np.uint8]

RawReads = tuple[Sequence[str], NDArray[np.int64], memoryview]
"""Names, offsets and joined letters of a batch."""


class BadReadError(ValueError):
    """A byte that is not a base, in the read with that ``index``, at a 0-based ``position``."""

    def __init__(self, index: int, position: int, byte: int) -> None:
        self.index = index
        self.position = position
        self.byte = byte
        super().__init__(f"{shown_byte(byte)} is not a base")

    @classmethod
    def at(cls, offsets: NDArray[np.int64], error: InvalidBaseError) -> BadReadError:
        """Convert an error whose position counts from the first of the joined reads."""
        index = int(np.searchsorted(offsets, error.position, side="right")) - 1
        return cls(index, error.position - int(offsets[index]), error.byte)


@dataclass(frozen=True, slots=True)
class ReadBatch:
    """Reads in stream order.

    names: the first word of each read's header. bases: uint8 base codes of all reads, one after the
    other (``trie.codes``). offsets: int64[reads + 1], read i is bases[offsets[i]:offsets[i+1]].
    context: where the reads come from, if requested.
    """

    names: Sequence[str]
    offsets: NDArray[np.int64]
    bases: NDArray[np.uint8]
    context: ReadContext | None = None

    def __len__(self) -> int:
        return len(self.names)

    @property
    def symbols(self) -> int:
        """The number of bases and gap codes in all reads."""
        return int(self.offsets[-1])

    @property
    def lengths(self) -> NDArray[np.int64]:
        """int64[reads]: the length of each read."""
        return np.diff(self.offsets)

    def two_bits(self) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
        """Return the bases and the positions of gaps, packed as by ``trie.codes``."""
        return pack_codes(self.bases)

    @classmethod
    def from_letters(
        cls, names: Sequence[str], offsets: NDArray[np.int64], letters: Letters
    ) -> ReadBatch:
        """Encode the joined letters of reads; BadReadError names the first bad read."""
        try:
            bases = encode(letters)
        except InvalidBaseError as error:
            raise BadReadError.at(offsets, error) from None
        return cls(names, offsets, bases)

    @classmethod
    def from_sequences(cls, names: Sequence[str], sequences: Sequence[str]) -> ReadBatch:
        """Encode separate sequences of letters; BadReadError names the first bad read."""
        return cls.from_letters(
            names, offsets_of(sequences), "".join(sequences).encode("latin-1", "replace")
        )


def joined_batches(batches: Sequence[ReadBatch], threads: int = 1) -> ReadBatch:
    """Join the reads of all batches into one batch without names."""
    starts = np.cumsum([0, *(batch.bases.size for batch in batches)]).tolist()
    total = starts[-1]
    bases = array_pool.empty(total, np.uint8)
    parts = [
        (bases[a:b], batch.bases) for a, b, batch in zip(starts, starts[1:], batches, strict=False)
    ]
    if total >= _SHARED:
        run_each(np.copyto, parts, threads)
    else:
        for target, source in parts:
            # unlike NumPy's copy this keeps the GIL
            target.data[:] = source.data
    offsets = [b.offsets[:-1] + start for b, start in zip(batches, starts, strict=False)]
    names = [""] * sum(len(batch) for batch in batches)
    return ReadBatch(names, np.append(np.concatenate(offsets), total), bases)


def chosen_batch(batch: ReadBatch, reads: NDArray[np.int64], most: int = 1 << 62) -> ReadBatch:
    """Some reads of a batch, by their numbers, without names; of each the first ``most`` bases."""
    offsets = np.zeros(reads.size + 1, np.int64)
    np.cumsum(np.minimum(batch.lengths[reads], most), out=offsets[1:])
    bases = array_pool.empty(int(offsets[-1]), np.uint8)
    _copy_reads(batch.bases, batch.offsets, reads, bases, offsets)
    return ReadBatch([""] * reads.size, offsets, bases)


@njit(cache=True, nogil=True)
def _copy_reads(bases, offsets, reads, chosen, to):
    for i in range(reads.size):
        at = offsets[reads[i]]
        chosen[to[i] : to[i + 1]] = bases[at : at + to[i + 1] - to[i]]


def name_of(header: bytes) -> str:
    """Return the first word of a header, up to a blank or tab; ``bad_name`` checks for UTF-8."""
    word = header.lstrip(b" \t").split(b" ", 1)[0].split(b"\t", 1)[0]
    return word.decode("utf-8", "surrogateescape")


def bad_name(names: Sequence[str]) -> tuple[int, str] | None:
    """Return the index of the first name that is not printable UTF-8 and why, or None.

    This is the rule for names from files and sockets (``docs/protocol.md``), as any others corrupt
    tables. Bytes that are not UTF-8 are expected as decoded with ``surrogateescape``.
    """
    if "".join(names).isprintable():
        return None
    index = next(index for index, name in enumerate(names) if not name.isprintable())
    bad = next(character for character in names[index] if not character.isprintable())
    if "\udc80" <= bad <= "\udcff":
        return index, f"the name is not UTF-8: it holds byte 0x{ord(bad) - 0xDC00:02x}"
    return index, f"the name holds U+{ord(bad):04X}, which is not printable"


def offsets_of(sequences: Sequence[str] | Sequence[bytes]) -> NDArray[np.int64]:
    """Return int64[n + 1]: where each sequence starts once all are joined."""
    offsets = np.zeros(len(sequences) + 1, dtype=np.int64)
    np.cumsum(np.fromiter(map(len, sequences), np.int64, len(sequences)), out=offsets[1:])
    return offsets


COUNT_BYTES = 5
"""The most bytes that the array's head takes, and also the head of each name."""

_PACKER = msgpack.Packer()  # each has a buffer of a megabyte; a call is atomic in CPython

# printable ASCII except the blank
_FIRST: Final = np.uint8(0x21)
_LAST: Final = np.uint8(0x7E)


class PackedNames(Sequence[str]):
    """The strings of a msgpack array, decoded when first needed.

    bounds: int64[count, 2], where each name begins and ends in the frame, if known. begin: where
    the array begins in it.
    """

    __slots__ = ("_begin", "_bounds", "_count", "_frame", "_names")

    def __init__(
        self,
        frame: bytes | memoryview,
        count: int,
        bounds: NDArray[np.int64] | None = None,
        begin: int = 0,
    ) -> None:
        self._frame = frame
        self._count = count
        self._bounds = bounds
        self._begin = begin
        self._names: list[str] | None = None

    @classmethod
    def of(cls, frame: bytes | memoryview) -> PackedNames | None:
        """Return the names if the frame is an array of printable ASCII strings, else None."""
        count = count_names(np.frombuffer(frame, dtype=np.uint8))
        return None if count < 0 else cls(bytes(frame), int(count))

    @classmethod
    def in_memory(
        cls, memory: NDArray[np.uint8], stop: int, bounds: NDArray[np.int64]
    ) -> PackedNames:
        """Return the names that ``put_name`` wrote to ``memory`` from COUNT_BYTES to ``stop``."""
        head = _PACKER.pack_array_header(len(bounds))
        first = COUNT_BYTES - len(head)
        memory.data[first:COUNT_BYTES] = head
        return cls(memory.data[:stop], len(bounds), bounds, first)

    @property
    def packed(self) -> bytes:
        """The msgpack array."""
        return bytes(self._frame[self._begin :])

    @property
    def memory(self) -> NDArray[np.uint8]:
        """The memory that ends with ``packed``, without a copy."""
        return np.frombuffer(self._frame, dtype=np.uint8)

    @property
    def bounds(self) -> NDArray[np.int64]:
        """int64[count, 2]: where each name begins and ends in ``memory``."""
        if self._bounds is None:
            self._bounds = np.empty((self._count, 2), dtype=np.int64)
            _find(np.frombuffer(self._frame, dtype=np.uint8), self._bounds)
        return self._bounds

    def text(self, stop: int) -> memoryview:
        """Return the first ``stop`` names, at least one, as in ``packed`` but without the head."""
        return self.memory[self._first : int(self.bounds[stop - 1, 1])].data

    def part(self, start: int, stop: int) -> PackedNames:
        """Return the names from ``start`` to ``stop``, exclusive."""
        ends = np.append(self._first, self.bounds[:, 1])
        first, end = int(ends[start]), int(ends[stop])
        head = msgpack.Packer().pack_array_header(stop - start)
        bounds = self.bounds[start:stop] + (len(head) - first)
        return PackedNames(b"".join((head, self._frame[first:end])), stop - start, bounds)

    @property
    def _first(self) -> int:
        """Where the first name's own head begins in ``memory``."""
        return self._begin + int(_head_bytes(self._frame[self._begin]))

    def __len__(self) -> int:
        return self._count

    def __eq__(self, other: object) -> bool:
        """Return whether the other sequence has the same names."""
        return isinstance(other, Sequence) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]

    def __iter__(self) -> Iterator[str]:
        return iter(self._decoded())

    @overload
    def __getitem__(self, index: int) -> str: ...

    @overload
    def __getitem__(self, index: slice) -> list[str]: ...

    def __getitem__(self, index: int | slice) -> str | list[str]:
        if self._names is None and self._bounds is not None and isinstance(index, int):
            first, stop = self._bounds[index].tolist()
            return str(self._frame[first:stop], "utf-8")
        return self._decoded()[index]

    def _decoded(self) -> list[str]:
        if self._names is None:
            self._names = msgpack.unpackb(self._frame[self._begin :])
        assert self._names is not None
        return self._names


# too short to release the GIL
@njit(cache=True)
def _number(frame, at, size):
    value = 0
    for i in range(at, at + size):
        value = (value << 8) | np.int64(frame[i])
    return value


@njit(cache=True)
def _head_bytes(first):
    """Return the size of an array's head in bytes, from its first byte."""
    return 3 if first == 0xDC else 5 if first == 0xDD else 1


@njit(cache=True)
def _find(frame, bounds):
    """Find where the strings of a valid array begin and end."""
    at = _head_bytes(frame[0])
    for i in range(len(bounds)):
        kind = frame[at]
        at += 1
        length = np.int64(kind & 0x1F)
        if kind >= 0xD9:
            size = 1 << (kind - 0xD9)
            length = _number(frame, at, size)
            at += size
        bounds[i, 0] = at
        at += length
        bounds[i, 1] = at


@inner
def put_name(text, first, stop, names, to):
    """Write the first word of text[first:stop], delimited by blanks or tabs, as a msgpack string.

    From ``to`` on, ``names`` needs room for the header's bytes, COUNT_BYTES and 8 more. Returns
    where the word begins and ends in ``names``, and whether it is anything but printable ASCII.
    """
    while first < stop and (text[first] == 0x20 or text[first] == 0x09):
        first += 1
    end = first
    odd = False
    while end < stop:
        other = outside(text, end, _FIRST, _LAST)
        if not other:
            end += 64
            continue
        end += np.int64(trailing_zeros(other))
        if end >= stop or text[end] == 0x20 or text[end] == 0x09:
            break
        odd = True
        end += 1
    length = min(end, stop) - first
    if length < 0x20:
        names[to] = np.uint8(0xA0 | length)
        to += 1
    else:
        size = 1 if length < 1 << 8 else 2 if length < 1 << 16 else 4
        names[to] = np.uint8(0xD9 + size // 2)
        for i in range(size):
            names[to + size - i] = np.uint8(length >> (8 * i))
        to += 1 + size
    for i in range(0, length, 8):
        put_word(names, to + i, word_at(text, first + i))
    return to, to + length, odd


@njit(cache=True)
def count_names(frame):
    """Count the strings; -1 unless the frame is exactly an array of printable ASCII strings."""
    total = frame.size
    if total == 0:
        return -1
    first = frame[0]
    if 0x90 <= first <= 0x9F:  # fixarray
        count = np.int64(first & 0x0F)
        at = 1
    elif first == 0xDC or first == 0xDD:  # array 16, 32
        size = 2 if first == 0xDC else 4
        if total < 1 + size:
            return -1
        count = _number(frame, 1, size)
        at = 1 + size
    else:
        return -1
    for _ in range(count):
        if at >= total:
            return -1
        kind = frame[at]
        at += 1
        if 0xA0 <= kind <= 0xBF:  # fixstr
            length = np.int64(kind & 0x1F)
        elif 0xD9 <= kind <= 0xDB:  # str 8, 16, 32
            size = 1 << (kind - 0xD9)
            if at + size > total:
                return -1
            length = _number(frame, at, size)
            at += size
        else:
            return -1
        if at + length > total:
            return -1
        unprintable = np.uint8(0)
        for i in range(at, at + length):
            # 0x20..0x7e
            unprintable |= np.uint8(np.uint8(frame[i] - np.uint8(0x20)) > np.uint8(0x5E))
        if unprintable:
            return -1
        at += length
    return count if at == total else -1
