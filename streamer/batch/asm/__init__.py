"""Approximate pattern search under edit distance (WsPASM paper).

For a text T[0..n) and a pattern P[0..m), D[i, j] is 0 for i = 0, i for j = 0, D[i-1, j-1] where
T[j-1] = P[i-1], else 1 + the minimum of its three neighbours (equation 1): the fewest edits that
turn some T[s..j) into P[0..i). Every end e >= 1 with D[m, e] <= k is a hit. A gap code in the text
matches nothing; the reverse complement of a pattern is searched left to right like the pattern.

method          where       what
sequential      CPU         equation 1, cell by cell
pasm            CPU, CUDA   equation 3: rows of D in parallel, with the matrix X (algorithm 1)
wspasm          CUDA        algorithm 2: neighbours by warp shuffle, rows in global memory
wspasm-shared   CUDA        the same, text and pattern in shared memory
bit-parallel    CPU, CUDA   the default: differences of D, bit-sliced over text segments
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from streamer.batch.asm.blocks import Block, EndsFound, Texts, blocks, joined, of_letters, of_pieces
from streamer.batch.asm.engines import Cutters
from streamer.batch.asm.hit_reports import BestEnds, every_end, runs_of
from streamer.batch.asm.pattern_masks import Searches, check_patterns, masks_of, searches
from streamer.batch.choice import Choice, Device, choose
from streamer.batch.hits import Hits, structured
from streamer.batch.records import Letters, several
from streamer.errors import check_choice
from streamer.sequences.record_buffer import TextPiece
from trie.codes import InvalidBaseError, as_letters, encode
from trie.cpu.interrupts import interrupts_as_such
from trie.cpu.threads import usable_cores

Report = Literal["all", "best"]
REPORTS: tuple[Report, ...] = ("all", "best")

METHODS: dict[str, tuple[Device, ...]] = {
    "sequential": ("cpu",),
    "pasm": ("cpu", "cuda"),
    "wspasm": ("cuda",),
    "wspasm-shared": ("cuda",),
    "bit-parallel": ("cpu", "cuda"),
}
DEFAULT = "bit-parallel"


@interrupts_as_such()
def search(
    text: Letters | Sequence[Letters],
    patterns: Letters | Sequence[Letters],
    k: int,
    *,
    strands: str = "both",
    report: str = "all",
    method: str | None = None,
    device: str = "auto",
    threads: int | None = None,
    iupac: bool = False,
    gpus: int = 0,
) -> NDArray[np.void]:
    """Find patterns in one or several texts; return a structured array (``streamer.batch.hits``).

    text, patterns: letters (bytes, str or uint8 array), one or a sequence of them; the fields
    ``text`` and ``pattern`` are their indices. Rows are ordered by text, end, pattern, ``+`` before
    ``-``. With report ``all``, the start is -1; with ``best``, start and ``cigar`` are those of one
    optimal alignment. ``iupac``: an ambiguity code in a pattern matches its bases. ``gpus``: the
    most GPUs to use, 0 for all.

    Raises UsageError for an unknown option, DataError for an empty pattern or one not longer than
    k, InvalidBaseError (a ValueError) for a letter that is not DNA.

    >>> from streamer.batch import asm
    >>> hits = asm.search(b"ACGTTGCATTACG", ["TTGCA", "CATTG"], 1, strands="forward", report="best")
    >>> for hit in hits:
    ...     print(hit["start"], hit["end"], hit["distance"], hit["pattern"], hit["cigar"])
    1 6 1 1 1=1X3=
    3 8 0 0 5=
    6 10 1 1 4=1I
    """
    k = operator.index(k)  # accepts NumPy integers
    masks = [masks_of(letters, iupac=iupac) for letters in several(patterns)]
    check_patterns(masks, [str(i) for i in range(len(masks))], k)
    letters = [one if isinstance(one, bytes | str) else as_letters(one) for one in several(text)]
    choice = choose(METHODS, DEFAULT, method, device, gpus=gpus)
    wanted = searches(masks, k, strands)
    threads = threads or usable_cores()
    found = _find(of_letters(letters, k + 1), wanted, choice, report, threads)
    try:
        return structured([hits for _, hits in found], threads)
    except InvalidBaseError:
        for one in letters:
            encode(one)  # reports the position in its own text
        raise


def find(
    pieces: Iterable[TextPiece],
    wanted: Searches,
    choice: Choice,
    *,
    report: str = "all",
    threads: int | None = None,
) -> Iterator[tuple[int, Hits]]:
    """Yield the hits in all texts of the pieces, in row order, in parts of bounded size.

    Each part, possibly empty, comes with the number of the first text in which later parts may have
    hits. A text that is cut has the ``wanted.reach`` symbols before the cut in both pieces.
    ``threads``: CPU threads; None or 0 means every core. Columns that are constant in a part may be
    read-only views of one value.
    """
    return _find(of_pieces(pieces), wanted, choice, report, threads or usable_cores())


def _find(
    texts: Iterable[Texts], wanted: Searches, choice: Choice, report: str, threads: int
) -> Iterator[tuple[int, Hits]]:
    check_choice("report", report, REPORTS)
    cutters = Cutters(choice, wanted, threads, best=report == "best")
    best = BestEnds(wanted) if report == "best" else None
    first = 0
    for part, found in searched(texts, wanted, cutters):
        first = part.first
        if best is not None:
            rows: Iterable[Hits] = [best.add(runs_of(part, joined(found), wanted))]
        else:
            rows = map(partial(every_end, part, searches=wanted), found)
        yield from ((first, hits) for hits in rows)
    if best is not None:
        # even without rows, for its column cigar
        yield first, best.finish()


def searched(
    texts: Iterable[Texts], wanted: Searches, cutters: Cutters
) -> Iterator[tuple[Block, list[EndsFound]]]:
    """Yield parts of the texts in order, and every end in each."""
    return cutters.search(blocks(texts, wanted.k, wanted.reach, cutters.block_size))


__all__ = ["METHODS", "InvalidBaseError", "find", "search", "searches"]
