"""The kernels of approximate pattern search compile to PTX, which needs no card."""

from __future__ import annotations

import pytest

pytest.importorskip("numba_cuda", reason="PTX needs numba-cuda (extra gpu-test)")

from gpu.asm import bit_parallel, listing, paper
from tests.gpu.ptx import compiled

pytestmark = pytest.mark.whole

WARPS = (
    "uint8[::1]", "uint8[::1]", "int32[::1]", "int32[:,::1]", "int32", "int32", "int32",
    "int32[:,:,::1]", "uint32[:,::1]",
)  # fmt: skip
SLICED = ("uint32[::1]", "uint32[::1]", "int64", "int64", "int32", "int64", "int64")
SLICES = ("uint32[::1]", "int64", "int64", "uint32[::1]", "int64", "uint32[::1]")
SCAN = (
    "uint32[::1]", "uint32[::1]", "int64", "int64", "int64", "uint8[::1]", "int64", "int32",
    "uint8[::1]", "uint32[::1]", "int32", "int32", "uint32[::1]", "uint32[::1]",
)  # fmt: skip
STRIPS = (
    bit_parallel.Strip(rows=32, first=True, planes=6, letters=4),
    bit_parallel.Strip(rows=8, first=False, planes=0, letters=4),
    bit_parallel.Strip(rows=5, first=False, planes=11, letters=16),
)
"""Some of what the bit-sliced kernel is made for."""


def sources():
    """The plain functions and the names of their argument types."""
    found = {
        "last_in_piece": (paper.last_in_piece, ("uint8[::1]", "uint8[::1]", "int32[:,::1]")),
        "carry_over": (paper.carry_over(paper.PASM_THREADS), ("int32[:,::1]",)),
        "last_positions": (
            paper.last_positions, ("uint8[::1]", "uint8[::1]", "int32[:,::1]", "int32[:,::1]"),
        ),
        "first_row": (paper.first_row, ("int32[::1]",)),
        "pasm_row": (
            paper.pasm_row,
            ("uint8[::1]", "uint8", "int32[::1]", "int32", "int32[::1]", "int32[::1]"),
        ),
        "collect": (paper.collect, ("int32[::1]", "int32", "int32", "uint32[:,::1]")),
        "wspasm": (paper.wspasm(paper.WSPASM_THREADS, 1, False), WARPS),
        "wspasm_shared": (paper.wspasm(paper.WSPASM_THREADS, 1, True), WARPS),
        "wspasm_shared_2": (paper.wspasm(paper.WSPASM_THREADS, 2, True), WARPS),
        "slice_text": (bit_parallel.slice_text(bit_parallel.TILE), SLICES),
        "count_sliced": (
            listing.count(listing.COUNT_THREADS, bit_parallel.TILE),
            (*SLICED, "uint8[::1]", "uint32[::1]", "int64[::1]"),
        ),
        "emit_sliced": (
            listing.emit(bit_parallel.TILE, listing.LISTED),
            (*SLICED, "int32", "uint8[::1]", "uint32[::1]", "int64[::1]", "int64", "uint32[::1]",
             "uint16[::1]"),
        ),
        "places": (
            listing.sums_before(listing.PLACE_THREADS),
            ("int64[::1]", "int64", "int64", "int64[::1]", "int64[::1]"),
        ),
        "count": (
            paper.count(paper.LIST_THREADS), ("uint32[:,:,::1]", "int64", "int64", "int64[:,::1]"),
        ),
        "emit": (
            paper.emit(paper.LIST_THREADS),
            ("uint32[:,:,::1]", "int64", "int64", "int32", "int32", "int64[::1]", "uint32[::1]",
             "uint16[::1]"),
        ),
    }  # fmt: skip
    for strip in STRIPS:
        name = f"scan_{strip.rows}_{strip.planes}_{strip.letters}"
        found[name] = (bit_parallel.strip_kernel(strip, bit_parallel.THREADS), SCAN)
    return found


@pytest.mark.parametrize("name", sources())
def test_the_kernels_of_asm(name):
    ptx = compiled(sources()[name], (9, 0))
    assert ".target sm_90" in ptx
    assert ".local" not in ptx
    if name in ("count_sliced", "emit_sliced") or name.startswith("scan"):
        assert "ld.global.nc.v4.u32" in ptx
    if name.startswith("slice"):
        assert ptx.count("prmt.b32") >= 16
        assert "st.global.v4.u32" in ptx
    if name.startswith("wspasm"):
        assert "shfl.sync.up" in ptx
    if name.startswith("scan"):
        rows = int(name.split("_")[1])
        # three three-input operations a cell, four columns at once
        assert ptx.count("lop3.b32") >= 12 * rows
        assert ".u64 %SP" not in ptx


def test_the_oldest_card():
    assert ".target sm_80" in compiled(sources()["collect"], (8, 0))
