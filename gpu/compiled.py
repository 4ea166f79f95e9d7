"""Kernels compiled once for each k and variant, and the table of what there is to compile."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from gpu.intrinsics import cuda
from gpu.kernels import derive, naive, orient, shuffle, walk

KERNELS = ("walk", "shuffle", "naive")
"""Names of the exact-match kernels, the default first."""


def sources(k: int) -> dict[str, tuple[Callable[..., None], tuple[str, ...]]]:
    """Every kernel for windows of k symbols by name: the plain function and its argument types."""
    table: dict[str, tuple[Callable[..., None], tuple[str, ...]]] = {
        "naive": (naive.naive, naive.signature()),
        "split": (orient.split, orient.signature_split()),
        "merge": (orient.merge, orient.signature_merge()),
        "interleave": (derive.interleave, derive.signature_interleave()),
        "clear": (derive.clear, derive.signature_clear()),
        "jump": (derive.jump(walk.jump_level(k)), derive.signature_jump()),
    }
    for canonical in (False, True):
        name = "_canonical" if canonical else ""
        table[f"walk{name}"] = (walk.walk_bits(k, canonical), walk.signature_bits(k))
        table[f"walk{name}_words"] = (walk.walk_words(k, canonical), walk.signature_words())
    for with_words in (False, True):
        table["shuffle_words" if with_words else "shuffle"] = (
            shuffle.shuffle(k, with_words),
            shuffle.signature(),
        )
    return table


@cache
def kernel(name: str, k: int = 0) -> Any:
    """The compiled kernel of that name; compiled at its first launch on each device.

    k is only asked for by the kernels that are made for one k.
    """
    return cuda.jit(sources(k or 1)[name][0])
