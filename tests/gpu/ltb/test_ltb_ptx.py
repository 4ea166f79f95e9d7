"""The Levenshtein Tree Bitmap kernels compile to PTX, which needs no card."""

from __future__ import annotations

import pytest

pytest.importorskip("numba_cuda", reason="PTX needs numba-cuda (extra gpu-test)")

from gpu.ltb.kernels import sources
from tests.gpu.ptx import CAPABILITIES, compiled

pytestmark = pytest.mark.whole


@pytest.mark.parametrize("capability", CAPABILITIES)
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
