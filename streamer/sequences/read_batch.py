"""A batch of reads in columns: names, offsets and one array of base codes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from streamer.sequences.context import ReadContext
from trie.codes import InvalidBaseError, encode, shown_byte
from trie.cpu import array_pool
from trie.cpu.threads import run_each
from trie.packed_codes import pack_codes

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
        """Return the bases and the positions of gaps, packed as by ``trie.packed_codes``."""
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
