"""Input of the solvers: one or several sequences as base codes, from files or from memory."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from streamer.errors import check_choice
from streamer.sequences.files import read_batches, read_pieces
from streamer.sequences.raw_file import BLOCK_BYTES
from trie.codes import encode
from trie.codes import reverse_complement as reverse_complement
from trie.strands import PATTERN_STRANDS

Letters = bytes | str | NDArray[np.uint8]
Codes = NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class NamedSequence:
    """A named sequence: the first word of its header, and base codes (uint8, ``trie.codes``)."""

    name: str
    codes: Codes


def records(path: str) -> Iterator[NamedSequence]:
    """Yield the records of a sequence file one by one, so memory holds only one at a time.

    ``-`` is standard input; DataError names file, record and position of what cannot be read.
    """
    for batch in read_batches([path], batch_bases=1):
        for i, name in enumerate(batch.names):
            yield NamedSequence(name, batch.bases[batch.offsets[i] : batch.offsets[i + 1]])


def pieces(
    path: str, overlap: int, size: int, on_bytes: Callable[[int], None] | None = None
) -> Iterator[Codes]:
    """Yield the codes of records one by one; long ones in pieces of up to about ``size`` symbols.

    Consecutive pieces of a record share ``overlap`` symbols; a FASTQ or BAM record is one piece.
    """
    # a piece may exceed its size by one block of the file, and by the rest of the previous one
    size = max(1, size - overlap - 2 * BLOCK_BYTES)
    for piece in read_pieces(path, overlap, size=size, on_bytes=on_bytes):
        offsets = piece.reads.offsets.tolist()
        for first, stop in pairwise(offsets):
            yield piece.reads.bases[first:stop]


def several(sequences: Letters | Sequence[Letters]) -> Iterable[Letters]:
    """Return one or several sequences of letters as several; a 2-D array has one per row."""
    if isinstance(sequences, bytes | bytearray | memoryview | str) or (
        isinstance(sequences, np.ndarray) and sequences.ndim < 2
    ):
        return [sequences]  # type: ignore[list-item]
    return sequences


def as_records(sequences: Letters | Sequence[Letters]) -> list[NamedSequence]:
    """Convert the input of ``several`` to records named by their number.

    Raises InvalidBaseError (a ValueError) at a byte that is neither a base nor an ambiguity code.
    """
    return [NamedSequence(str(i), encode(letters)) for i, letters in enumerate(several(sequences))]


def signs_of(strands: str) -> list[int]:
    """Return the indices in SIGNS of a search's strands; raise UsageError if unknown."""
    check_choice("strands", strands, PATTERN_STRANDS)
    return [sign for sign, other in ((0, "reverse"), (1, "forward")) if strands != other]
