"""Beta in pieces that fit in memory, without losing a substring that matters.

A prefix of alpha within k - 1 differences of a substring of beta is at most len(alpha) symbols
long, so the substring has at most len(alpha) + k - 1. Long records are cut into pieces that overlap
by that much; short ones share a chunk. So memory holds one record and one chunk, whatever the size
of beta.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from trie.codes import GAP
from trie.cpu.jit import njit

Codes = NDArray[np.uint8]

SEPARATOR = 5
"""Stands between records of a joined text: no substring holds it."""

CHUNK_SYMBOLS = 1 << 26


def piece_symbols(overlap: int, *, both: bool, limit: int = CHUNK_SYMBOLS) -> int:
    """How many symbols the pieces of a long record have."""
    longest = max(limit, 4 * overlap)
    return longest // 2 if both else longest


def chunks(
    records: Iterable[Codes], overlap: int, *, both: bool, limit: int = CHUNK_SYMBOLS
) -> Iterator[list[Codes]]:
    """Pieces of records, in lists of at most ``limit`` symbols and a separator each.

    A piece has at least four times the overlap, so limits below that are raised. With ``both``
    every piece is followed by its reverse complement. Empty records give nothing.
    """
    longest = max(limit, 4 * overlap)
    held: list[Codes] = []
    size = 0
    for record in records:
        for piece in _pieces(record, overlap, piece_symbols(overlap, both=both, limit=limit)):
            for oriented in (piece, turned(piece)) if both else (piece,):
                if held and size + oriented.size + 1 > longest:
                    yield held
                    held, size = [], 0
                held.append(oriented)
                size += oriented.size + 1
    if held:
        yield held


def _pieces(record: Codes, overlap: int, longest: int) -> Iterator[Codes]:
    first = 0
    while first < record.size:
        yield record[first : first + longest]
        if first + longest >= record.size:
            return
        first += longest - overlap


def turned(codes: Codes) -> Codes:
    """The reverse complement; a gap stays one."""
    out = np.empty(codes.size, dtype=np.uint8)
    _turn(np.ascontiguousarray(codes), out)
    return out


@njit(cache=True, nogil=True)
def _turn(codes, out):
    last = codes.size - 1
    for i in range(codes.size):
        code = codes[last - i]
        out[i] = code if code == GAP else np.uint8(3) - code


def joined(pieces: list[Codes]) -> Codes:
    """The pieces as one text with SEPARATOR behind each."""
    size = sum(piece.size + 1 for piece in pieces)
    text = np.full(size, SEPARATOR, dtype=np.uint8)
    at = 0
    for piece in pieces:
        text[at : at + piece.size] = piece
        at += piece.size + 1
    return text
