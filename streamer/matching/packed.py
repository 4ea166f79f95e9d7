"""Reads as a producer sent them, packed for a card as they came: their letters are read once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from streamer.sequences.read_batch import ReadBatch
from trie.codes import encode

if TYPE_CHECKING:
    from gpu.card.packing import PackedChunk

Letters = bytes | memoryview | NDArray[np.uint8]

Columns = tuple[Sequence[str], NDArray[np.int64], memoryview]
"""Names, offsets and joined letters of a batch."""


class PackedReads(ReadBatch):
    """A batch in ``packed`` form, of which ``letters`` are kept; base codes are made if asked for.

    letters must stay as they are. They are bases all: whoever packed them has seen to that.
    """

    __slots__ = ("_codes", "letters", "packed")

    packed: PackedChunk
    letters: Letters
    _codes: NDArray[np.uint8] | None

    def __init__(
        self,
        names: Sequence[str],
        offsets: NDArray[np.int64],
        letters: Letters,
        packed: PackedChunk,
    ) -> None:
        for name, value in (
            ("names", names),
            ("offsets", offsets),
            ("letters", letters),
            ("packed", packed),
            ("_codes", None),
        ):
            object.__setattr__(self, name, value)

    @property
    def bases(self) -> NDArray[np.uint8]:
        """uint8 base codes of all reads, one after the other."""
        if self._codes is None:
            object.__setattr__(self, "_codes", encode(self.letters))
        assert self._codes is not None
        return self._codes
