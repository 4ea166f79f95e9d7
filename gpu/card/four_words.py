"""Loads and stores of four words, 16 bytes, which numba does not generate."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpu.card.assembly import instruction


def bytes_of(array: Any) -> NDArray[np.uint8]:
    """The bytes of an array passed to a kernel by the simulator."""
    flat: NDArray[np.uint8] = getattr(array, "_ary", array).view(np.uint8)
    return flat


def _load(array: Any, index: Any) -> Any:
    return tuple(bytes_of(array)[16 * int(index) :][:16].view(np.uint32))


def _store(array: Any, index: Any, *words: Any) -> None:
    bytes_of(array)[16 * int(index) :][:16].view(np.uint32)[:] = words


load_four = instruction(
    "{ .reg .u64 at; shl.b64 at, $5, 4; add.u64 at, at, $4; "
    "ld.global.nc.v4.u32 {$0, $1, $2, $3}, [at]; }",
    ("u32",) * 4,
    ("global", "u64"),
    _load,
)
"""(array, index): words 4 index to 4 index + 3 (uint32) of a read-only array."""

store_four = instruction(
    "{ .reg .u64 at; shl.b64 at, $1, 4; add.u64 at, at, $0; "
    "st.global.v4.u32 [at], {$2, $3, $4, $5}; }",
    (),
    ("global", "u64", "u32", "u32", "u32", "u32"),
    _store,
    volatile=True,
)
"""(array, index, a, b, c, d): write words 4 index to 4 index + 3."""

stage_four = instruction(
    "{ .reg .u32 at; shl.b32 at, $1, 4; add.u32 at, at, $0; "
    "st.shared.v4.u32 [at], {$2, $3, $4, $5}; }",
    (),
    ("shared", "u32", "u32", "u32", "u32", "u32"),
    _store,
    volatile=True,
)
"""As ``store_four``, in shared memory; the array is aligned to 16 bytes."""
