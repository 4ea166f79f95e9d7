"""The kernels of approximate pattern search compile to PTX, which needs no card."""

from __future__ import annotations

import os

import pytest

pytest.importorskip("numba_cuda", reason="PTX needs numba-cuda (extra gpu-test)")

if os.environ.get("NUMBA_ENABLE_CUDASIM") == "1":
    pytest.skip("the simulator compiles nothing", allow_module_level=True)

from gpu.asm.kernels import sources
from tests.gpu.ptx import compiled


@pytest.mark.parametrize("name", sources())
def test_the_kernels_of_asm(name):
    ptx = compiled(sources()[name], (9, 0))
    assert ".target sm_90" in ptx
    assert ".local" not in ptx
    if name in ("slice_text", "count_sliced", "emit_sliced") or name.startswith("scan"):
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
