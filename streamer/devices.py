"""Choose where to match, and say so in one line."""

from __future__ import annotations

import sys
from typing import Literal

from streamer.errors import StreamerError

CUDA_KERNELS = ("shuffle", "naive", "buckets", "ltb-naive", "ltb-efficient", "ltb-queue")
"""Kernels that need a CUDA device."""

KERNELS = {
    "exact": ("auto", "index", "walk", "shuffle", "naive", "buckets"),
    "levenshtein": ("auto", "pieces", "lanes"),
    "ltb": ("auto", "sliced", "active", "ltb-naive", "ltb-efficient", "ltb-queue"),
}
"""Those of exact matching and of each semantics of a distance."""


def cuda_problem() -> str | None:
    """Why no CUDA device can be used, in one line; None if one can."""
    from gpu.device import devices

    try:
        found = devices()
        if not found:
            return "no CUDA device"
        # the kernels themselves need no more than numba's own CUDA target; loading them tells
        import gpu.engine  # noqa: F401
    except (RuntimeError, ImportError) as error:
        return str(error)
    return None


def choose_device(
    device: str, *, quiet: bool, kernel: str = "auto", option: str = "--device"
) -> Literal["cpu", "cuda"]:
    """The device to use for ``auto``, ``cpu`` or ``cuda``; StreamerError if it cannot be had.

    Says in one line what ``auto`` has chosen, unless ``quiet``. A kernel of CUDA_KERNELS on the CPU
    is a StreamerError too.
    """
    problem = None if device == "cpu" else cuda_problem()
    if device == "cuda" and problem is not None:
        message = f"{option} cuda: {problem}; use {option} cpu or auto"
        raise StreamerError(message)
    chosen: Literal["cpu", "cuda"] = "cpu" if device == "cpu" or problem is not None else "cuda"
    if chosen == "cpu" and kernel in CUDA_KERNELS:
        message = f"the kernel '{kernel}' needs a CUDA device" + (f": {problem}" if problem else "")
        raise StreamerError(message)
    if device == "auto" and not quiet:
        print(f"streamer: {shown(chosen, problem)}", file=sys.stderr)
    return chosen


def usable_cards(limit: int = 0) -> list[int]:
    """The numbers of the CUDA devices, at most ``limit`` of them (0: all).

    StreamerError says in one line why there is none.
    """
    from gpu.device import devices

    try:
        found = [device.number for device in devices()]
    except RuntimeError as error:
        raise StreamerError(str(error)) from None
    if not found:
        message = "no CUDA device"
        raise StreamerError(message)
    return found[: limit or None]


def shown(chosen: str, problem: str | None, verb: str = "matching") -> str:
    """One line that says where it runs, and why not on a GPU."""
    if chosen == "cuda":
        from gpu.device import devices

        names = ", ".join(device.name for device in devices())
        return f"{verb} on {names} (CUDA)"
    from trie.parallel import usable_cores

    return f"{verb} on the CPU, {usable_cores()} cores ({problem})"
