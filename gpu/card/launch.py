"""Kernels by name, and how many threads they are launched with."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from gpu.card.kernel_cache import jit

Source = tuple[Callable[..., None], tuple[str, ...]]
"""A kernel as a plain function, with its argument types, such as "uint32" or "uint64[::1]"."""


@cache
def compiled(sources: Callable[..., Mapping[str, Source]], name: str, *made_for: Any) -> Any:
    """The kernel ``name`` of ``sources(*made_for)``, compiled or loaded at its first launch."""
    return jit(sources(*made_for)[name][0])


def with_threads(kernel: Any, threads: int, block: int, stream: Any = 0) -> Any:
    """``kernel`` with a grid of at least ``threads`` threads, ``block`` (32 divides it) a block."""
    assert block % 32 == 0, "whole warps"
    return kernel[max(1, -(-threads // block)), block, stream]
