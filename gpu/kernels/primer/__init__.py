"""The k-difference primer problem (primer paper) on a card, and what there is to compile.

conventional   matrix D, optimizations 1, 3, 4 and 5
alternative    matrix L, optimizations 3, 4, 5 and 6
scan           windows of alpha along the text, bit-parallel
reach          how far single starts reach near a place of the text
seeds          windows found through their pieces
pack           the text as the last three read it
"""

from __future__ import annotations

from collections.abc import Callable

from gpu.kernels.primer import alternative, conventional, pack, reach, scan, seeds

Source = tuple[Callable[..., None], tuple[str, ...]]


def sources(words: int = 7, threads: int = 64, k: int = 100) -> dict[str, Source]:
    """Every kernel by name: the plain function and its argument types."""
    return {
        "conventional": (conventional.kernel(threads), conventional.SIGNATURE),
        "alternative": (alternative.kernel(threads, k, 3, False), alternative.SIGNATURE),
        "alternative_counted": (alternative.kernel(threads, k, 1, True), alternative.SIGNATURE),
        "scan": (scan.kernel(words, False), scan.SIGNATURE),
        "nearest": (scan.kernel(words, True), scan.SIGNATURE),
        "seeds": (seeds.seeds, seeds.SIGNATURE),
        "pack": (pack.pack, pack.SIGNATURE),
        "reach": (reach.kernel(words), reach.SIGNATURE),
    }
