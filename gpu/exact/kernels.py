"""The kernels of exact matching by name; each method has a module of its own."""

from __future__ import annotations

from typing import Any

from gpu.card.launch import Source, compiled
from gpu.exact import bucket_table as buckets
from gpu.exact import derive, naive, orient, shuffle, walk

KERNELS = ("buckets", "walk", "shuffle", "naive")
"""Names of the methods."""

BUCKETS_FROM = 13
"""The k from which ``buckets`` is the default: below, a walk too makes no more than one look-up."""


def default_method(k: int) -> str:
    """The fastest kernel for windows of k symbols."""
    return "buckets" if k >= BUCKETS_FROM else "walk"


def _leaves(k: int) -> str:
    return "uint64[::1]" if k % 3 == 0 else "uint32[::1]"


def sources(k: int) -> dict[str, Source]:
    """Every kernel for windows of k symbols."""
    bits, words, number = "uint32[::1]", "uint64[::1]", "uint32"
    chunk = (bits, bits)
    found = (bits, words, bits)  # matches, event words, their counter
    stepwise = (*chunk, number, number, number, words, *found)
    table: dict[str, Source] = {
        "naive": (
            naive.naive,
            (*chunk, *(number,) * 4, bits, bits, words, bits, "uint32[:, ::1]", *found),
        ),
        "split": (orient.split, (*chunk, number, number, bits, bits, bits)),
        "merge": (orient.merge, (bits, number, number, bits)),
        "interleave": (derive.interleave, (bits, words, bits, words)),
        "expand": (derive.expand, (number, number, words, bits, words)),
        "clear": (derive.clear, (bits,)),
        "jump": (derive.jump(walk.jump_level(k)), (words, words)),
        "shuffle": (shuffle.shuffle(k, False), stepwise),
        "shuffle_words": (shuffle.shuffle(k, True), stepwise),
    }
    for canonical in (False, True):
        name = "walk_canonical" if canonical else "walk"
        table[name] = (walk.walk_bits(k, canonical), (*chunk, words, words, _leaves(k), bits))
        table[f"{name}_words"] = (walk.walk_words(k, canonical), (*chunk, words, *found))
    return table


def bucket_sources(shape: buckets.BucketShape) -> dict[str, Source]:
    """The kernels for one shape of bucket table."""
    bits, words = "uint32[::1]", "uint64[::1]"
    looked_up = (bits, bits, words, words, words, _leaves(shape.k), bits)
    return {
        "buckets": (buckets.lookup(shape, False), looked_up),
        "buckets_canonical": (buckets.lookup(shape, True), looked_up),
        "insert": (buckets.insert(shape), ("uint32", bits, words, words, bits)),
        "finish": (buckets.finish(shape), (words, bits)),
    }


def kernel(name: str, k: int = 1) -> Any:
    """The compiled kernel of that name; k matters only to those that are made for one k."""
    return compiled(sources, name, k)


def bucket_kernel(name: str, shape: buckets.BucketShape) -> Any:
    """The compiled kernel of that name for one shape of bucket table."""
    return compiled(bucket_sources, name, shape)
