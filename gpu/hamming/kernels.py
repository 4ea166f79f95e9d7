"""Kernels of the search with k mismatches (PMASM paper): the paper's, bit-sliced, pigeonhole."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from gpu.card.intrinsics import SIMULATED
from gpu.card.kernel_cache import jit
from gpu.hamming import bit_sliced, naive, order, pigeonhole, pmasm, shift_add
from gpu.hamming.shape import SlicedShape

Source = tuple[Callable[..., None], tuple[str, ...]]


def sources() -> dict[str, Source]:
    """The kernels for all patterns by name: the plain function and its argument types."""
    return {
        "naive": (naive.naive, naive.signature()),
        "pmasm-thread": (pmasm.thread, pmasm.signature()),
        "pmasm-block-thread": (pmasm.block_thread, pmasm.signature()),
        "pmasm-shared": (pmasm.shared, pmasm.signature()),
        "tally": (order.tally, order.signature_tally()),
        "begins": (order.begins(order.MANY_THREADS), order.signature_begins()),
        "place": (order.place, order.signature_place()),
        "sort-few": (order.sort(order.FEW_THREADS, order.FEW), order.signature_sort()),
        "sort-many": (order.sort(order.MANY_THREADS, 0), order.signature_sort()),
    }


def shift_add_source(words: int) -> Source:
    """``shift-add`` for states of that many words."""
    return shift_add.shift_add(words), shift_add.signature()


def bit_sliced_source(shape: SlicedShape) -> Source:
    """``bit-sliced`` for one shape."""
    return bit_sliced.bit_sliced(shape), bit_sliced.signature()


def pigeonhole_source(length: int) -> Source:
    """``pigeonhole`` for pieces of that many symbols."""
    return pigeonhole.pigeonhole(length), pigeonhole.signature()


@cache
def kernel(name: str) -> Any:
    """The compiled kernel of ``sources``."""
    return jit(sources()[name][0])


@cache
def shift_add_kernel(words: int) -> Any:
    """The compiled kernel ``shift-add``."""
    return jit(shift_add_source(words)[0])


@cache
def bit_sliced_kernel(shape: SlicedShape) -> Any:
    """The compiled kernel ``bit-sliced``."""
    options = {} if SIMULATED else {"max_registers": shape.registers}
    return jit(bit_sliced_source(shape)[0], **options)


@cache
def pigeonhole_kernel(length: int) -> Any:
    """The compiled kernel ``pigeonhole``."""
    return jit(pigeonhole_source(length)[0])
