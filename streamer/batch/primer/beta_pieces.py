"""Cut beta into pieces that fit in memory, without losing a substring that matters.

A prefix of alpha within k - 1 differences of a substring of beta has at most len(alpha) symbols, so
the substring has at most len(alpha) + k - 1. Long records are cut into pieces that overlap by that
much; short ones share a chunk. Memory holds one record and one chunk, whatever the size of beta.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from streamer.batch.records import Codes, reverse_complement

SEPARATOR = 5  # follows each record of a joined text; no substring contains it
CHUNK_SYMBOLS = 1 << 26


def piece_symbols(overlap: int, *, both: bool, limit: int = CHUNK_SYMBOLS) -> int:
    """Return the length of the pieces of a long record."""
    longest = max(limit, 4 * overlap)
    return longest // 2 if both else longest


def chunks(
    records: Iterable[Codes], overlap: int, *, both: bool, limit: int = CHUNK_SYMBOLS
) -> Iterator[list[Codes]]:
    """Yield pieces of records, in lists of at most ``limit`` symbols, including separators.

    A piece has at least four times the overlap; smaller limits are raised. With ``both``, each
    piece is followed by its reverse complement. Empty records are skipped.
    """
    longest = max(limit, 4 * overlap)
    size = piece_symbols(overlap, both=both, limit=limit)
    chunk: list[Codes] = []
    room = longest
    for record in records:
        for piece in _pieces(record, overlap, size):
            for oriented in (piece, reverse_complement(piece)) if both else (piece,):
                if chunk and oriented.size + 1 > room:
                    yield chunk
                    chunk, room = [], longest
                chunk.append(oriented)
                room -= oriented.size + 1
    if chunk:
        yield chunk


def _pieces(record: Codes, overlap: int, longest: int) -> Iterator[Codes]:
    first = 0
    while first < record.size:
        yield record[first : first + longest]
        if first + longest >= record.size:
            return
        first += longest - overlap


def joined(pieces: list[Codes]) -> Codes:
    """Join the pieces into one text, with SEPARATOR after each."""
    end = np.array([SEPARATOR], dtype=np.uint8)
    return np.concatenate([part for piece in pieces for part in (piece, end)])
