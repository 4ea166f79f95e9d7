"""The k-difference primer problem (primer paper) on a card, and what there is to compile.

conventional   matrix D, optimizations 1, 3, 4 and 5
alternative    matrix L, optimizations 3, 4, 5 and 6
pack           the text, and its reverse complement, as the others read it
scan           windows of alpha along the text, bit-parallel
pieces         the table of what a text may hold where a piece of a window has at most one error
seeds          windows found through that table
extend         how far starts reach where windows were found
"""

from __future__ import annotations

from collections.abc import Callable

from gpu.primer import alternative, conventional, extend, pack, pieces, scan, seeds

Source = tuple[Callable[..., None], tuple[str, ...]]


def sources(words: int = 7, threads: int = 64, k: int = 100) -> dict[str, Source]:
    """Every kernel by name: the plain function and its argument types."""
    return {
        "conventional": (conventional.kernel(threads), conventional.SIGNATURE),
        "alternative": (alternative.kernel(threads, k, 3, False), alternative.SIGNATURE),
        "alternative_counted": (alternative.kernel(threads, k, 1, True), alternative.SIGNATURE),
        "pack": (pack.pack, pack.SIGNATURE),
        "scan": (scan.kernel(words), scan.SIGNATURE),
        "windows_of": (pieces.windows_of, pieces.WINDOWS),
        "variants": (pieces.variants, pieces.VARIANTS),
        "seeds": (seeds.seeds, seeds.SIGNATURE),
        "extend": (extend.kernel(words, max(0, words - 2), False), extend.SIGNATURE),
        "extend_gaps": (extend.kernel(words, 0, True), extend.SIGNATURE),
    }
