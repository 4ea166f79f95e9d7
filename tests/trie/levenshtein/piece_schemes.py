"""Ways to cut patterns up into pieces."""

from __future__ import annotations

from trie.levenshtein.piece_index import Scheme


def schemes(k, distance):
    """Every way to cut k symbols up, with keys that are small enough for a test."""
    for paired in (False, True):
        spacing = k // (distance + (2 if paired else 1))
        gaps = tuple(range(distance + 1)) if paired else (-1,)
        for width in range(1, min(spacing, 3 if paired else 6) + 1):
            if k - width + distance <= 31:
                yield Scheme(k, distance, spacing, width, gaps)
