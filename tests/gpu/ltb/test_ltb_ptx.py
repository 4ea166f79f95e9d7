"""The Levenshtein Tree Bitmap kernels compile to PTX, which needs no card."""

from __future__ import annotations

import os

import pytest

pytest.importorskip("numba_cuda", reason="PTX needs numba-cuda (extra gpu-test)")

if os.environ.get("NUMBA_ENABLE_CUDASIM") == "1":
    pytest.skip("the simulator compiles nothing", allow_module_level=True)

from gpu.ltb.kernels import sources
from tests.gpu.ptx import compiled


@pytest.mark.parametrize("capability", [(8, 0), (9, 0)], ids=["sm_80", "sm_90"])
@pytest.mark.parametrize("name", list(sources()))
def test_the_kernels_compile(name, capability):
    ptx = compiled(sources()[name], capability)
    assert f".target sm_{capability[0]}{capability[1]}" in ptx
    if name == "planes":
        return
    if name.startswith("ltb-sliced"):
        assert ".local" in ptx  # the path
        assert "vote.sync.any" in ptx
    else:
        assert ".local" not in ptx
        assert "bar.sync" in ptx
    if name.startswith("ltb-"):
        assert ptx.count(".global.or.b32") >= 2  # atomicOr of both bitmaps
    if name == "ltb-queue":
        assert ".shared" in ptx
        assert "shfl.sync.idx" in ptx
        assert "vote.sync.ballot" in ptx
