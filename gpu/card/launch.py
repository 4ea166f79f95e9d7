"""Kernels compiled once per process and device, and their launch sizes."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from gpu.card.intrinsics import SIMULATED
from gpu.card.kernel_cache import jit


@cache
def plain(function: Callable[..., None]) -> Any:
    """The kernel of a plain function."""
    return jit(function)


@cache
def made(make: Callable[..., Callable[..., None]], *arguments: Any, registers: int = 0) -> Any:
    """The kernel of the function that ``make(*arguments)`` returns.

    registers: the limit per thread; 0 leaves it to the compiler.
    """
    options = {"max_registers": registers} if registers and not SIMULATED else {}
    return jit(make(*arguments), **options)


def grid(size: int, threads: int) -> int:
    """The number of blocks of ``threads`` that cover ``size`` elements, at least one."""
    return max(1, -(-size // threads))


def with_threads(kernel: Any, threads: int, block: int, stream: Any = 0) -> Any:
    """``kernel`` with a grid of at least ``threads`` threads in blocks of ``block``, 32 | block."""
    assert block % 32 == 0, "whole warps"
    return kernel[grid(threads, block), block, stream]
