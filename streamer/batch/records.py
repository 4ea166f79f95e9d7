"""Input of the solvers: letters as base codes, one or several, from files or from memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from streamer.errors import check_choice
from streamer.sequences.files import read_batches, read_pieces
from streamer.sequences.text_window import BLOCK_BYTES
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
    """The records of a sequence file one by one, so that memory holds the longest, not all.

    ``-`` is standard input; DataError names file, record and position of what cannot be read.
    """
    for batch in read_batches([path], batch_bases=1):
        for i, name in enumerate(batch.names):
            yield NamedSequence(name, batch.bases[batch.offsets[i] : batch.offsets[i + 1]])


def pieces(
    path: str, overlap: int, size: int, on_bytes: Callable[[int], None] | None = None
) -> Iterator[Codes]:
    """The codes of records one by one; long ones in pieces of about ``size`` symbols at most.

    Pieces of one record have ``overlap`` symbols in common; a record of FASTQ or BAM is one piece.
    """
    # a piece is full within a block of the file, and what was left of the one before
    size = max(1, size - overlap - 2 * BLOCK_BYTES)
    for piece in read_pieces(path, overlap, size=size, on_bytes=on_bytes):
        offsets = piece.reads.offsets.tolist()
        for first, stop in pairwise(offsets):
            yield piece.reads.bases[first:stop]


def several(sequences: Letters | Sequence[Letters]) -> Iterable[Letters]:
    """One sequence of letters, or several, as several; an array of two dimensions is one a row."""
    if isinstance(sequences, bytes | bytearray | memoryview | str) or (
        isinstance(sequences, np.ndarray) and sequences.ndim < 2
    ):
        return [sequences]  # type: ignore[list-item]
    return sequences


def as_records(sequences: Letters | Sequence[Letters]) -> list[NamedSequence]:
    """What ``several`` takes, as records named by their number.

    InvalidBaseError (a ValueError) at a byte that is no base and no ambiguity letter.
    """
    return [NamedSequence(str(i), encode(letters)) for i, letters in enumerate(several(sequences))]


def signs_of(strands: str) -> list[int]:
    """The numbers in SIGNS of the strands of a search; UsageError for an unknown choice."""
    check_choice("strands", strands, PATTERN_STRANDS)
    return [sign for sign, other in ((0, "reverse"), (1, "forward")) if strands != other]
