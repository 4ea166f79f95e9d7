"""Kernels of exact matching: one module a method, ``sources`` names them all for one k."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from gpu.card.kernel_cache import jit
from gpu.exact import bucket_table as buckets
from gpu.exact import derive, naive, orient, shuffle, walk

KERNELS = ("buckets", "walk", "shuffle", "naive")
"""Names of the exact-match kernels."""

BUCKETS_FROM = 13
"""The k from which ``buckets`` is the default: below, a walk makes no more than one look-up too."""

Source = tuple[Callable[..., None], tuple[str, ...]]


def default_method(k: int) -> str:
    """The fastest kernel for windows of k symbols."""
    return "buckets" if k >= BUCKETS_FROM else "walk"


def sources(k: int) -> dict[str, Source]:
    """Every kernel for windows of k symbols by name: the plain function and its argument types."""
    table: dict[str, Source] = {
        "naive": (naive.naive, naive.signature()),
        "split": (orient.split, orient.signature_split()),
        "merge": (orient.merge, orient.signature_merge()),
        "interleave": (derive.interleave, derive.signature_interleave()),
        "expand": (derive.expand, derive.signature_expand()),
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


def bucket_sources(shape: buckets.BucketShape) -> dict[str, Source]:
    """The kernels that are made for one shape of bucket table, as ``sources``."""
    return {
        "buckets": (buckets.lookup(shape, False), buckets.signature(shape.k)),
        "buckets_canonical": (buckets.lookup(shape, True), buckets.signature(shape.k)),
        "insert": (buckets.insert(shape), buckets.signature_insert()),
        "finish": (buckets.finish(shape), buckets.signature_finish()),
    }


@cache
def kernel(name: str, k: int = 0) -> Any:
    """The compiled kernel of that name; compiled or loaded at its first launch.

    k is only asked for by the kernels that are made for one k.
    """
    return jit(sources(k or 1)[name][0])


@cache
def bucket_kernel(name: str, shape: buckets.BucketShape) -> Any:
    """The compiled kernel of that name for one shape of bucket table."""
    return jit(bucket_sources(shape)[name][0])
