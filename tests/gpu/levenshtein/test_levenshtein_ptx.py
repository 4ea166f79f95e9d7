"""The Levenshtein kernels compile to PTX, which needs the compiler's libraries but no card."""

from __future__ import annotations

import pytest

pytest.importorskip("numba_cuda", reason="PTX needs numba-cuda (extra gpu-test)")

from gpu.levenshtein import index
from gpu.levenshtein.search import sources
from tests.gpu.ptx import compiled

pytestmark = pytest.mark.whole


@pytest.mark.parametrize("name", ["scan1", "scan0_paired", "fill"])
def test_the_kernels(name):
    ptx = compiled(sources()[name], (9, 0))
    assert ".target sm_90" in ptx
    if name.startswith("scan"):
        # windows by one funnel shift, buckets and entries through the read-only path
        assert "shf.r.wrap.b32" in ptx
        assert ptx.count("ld.global.nc.u64") == 2
        assert "atom.global.min.u32" in ptx or "red.global.min.u32" in ptx


@pytest.mark.parametrize("name", ["count", "share", "place"])
def test_the_kernels_that_make_the_index(name):
    ptx = compiled(index.sources()[name], (9, 0))
    assert ".target sm_90" in ptx
    assert ".local" not in ptx
    assert "div" not in ptx
