"""Statements of kernels that are written by loops: numba unrolls none over registers."""

from __future__ import annotations


def block(indent: int, lines: list[str]) -> str:
    """The lines as one text to stand in a kernel after ``indent`` spaces."""
    return ("\n" + " " * indent).join(lines)


def sum_up(name: str) -> list[str]:
    """``name`` (uint32) becomes the sum of this lane's and of those before it."""
    lines = []
    for step in (1, 2, 4, 8, 16):
        lines += [
            f"other = np.uint32(cuda.shfl_up_sync(ALL_LANES, as_signed({name}), {step}))",
            f"if lane >= np.uint32({step}):",
            f"    {name} = np.uint32({name} + other)",
        ]
    return lines
