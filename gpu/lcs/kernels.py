"""Kernels of the longest common subsequence: one module a kernel, ``sources`` names them all."""

from __future__ import annotations

from collections.abc import Callable

from gpu.lcs import block_step, cut, prepare, systolic
from gpu.lcs.systolic import GridShape

Source = tuple[Callable[..., None], tuple[str, ...]]

SHAPES = (
    GridShape(words=4, symbols=4, warps=1),
    GridShape(words=10, symbols=4, warps=1),
    GridShape(words=4, symbols=31, warps=1),
    GridShape(words=1, symbols=255, warps=1),
)
"""What the systolic kernel is made for: DNA in strips of two heights, small and large alphabets.

A column's symbol is a byte, and one value of it stands for none.
"""


def sources(shape: GridShape) -> dict[str, Source]:
    """The plain functions and the names of their argument types; only ``systolic`` hangs on the
    shape."""
    return {
        "systolic": (systolic.systolic(shape), systolic.signature()),
        "planes": (prepare.planes, prepare.signature_planes()),
        "arrange": (prepare.arrange, prepare.signature_arrange()),
        "cut": (cut.cut, cut.signature()),
        "match_vectors": (block_step.match_vectors, block_step.signature_match_vectors()),
        "block_step": (block_step.block_step, block_step.signature()),
    }
