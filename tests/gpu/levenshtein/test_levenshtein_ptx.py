"""The Levenshtein kernels compile to PTX, which needs the compiler's libraries but no card."""

from __future__ import annotations

import pytest

pytest.importorskip("numba_cuda", reason="PTX needs numba-cuda (extra gpu-test)")

from gpu import levenshtein
from gpu.levenshtein import search
from tests.gpu.ptx import compiled

pytestmark = pytest.mark.whole

KEYS = ("uint64[::1]", *("uint32",) * 7, "uint32[::1]")


def sources():
    """Every kernel by name: the plain function and its argument types."""
    found = {
        "fill": (search.fill, ("uint32[::1]", "uint64[::1]")),
        "count": (levenshtein.count_keys, KEYS),
        "share": (levenshtein.share_buckets, ("uint32[::1]", "uint32[::1]", "uint64[::1]")),
        "place": (levenshtein.place_entries, (*KEYS, "uint64[::1]", "uint32[::1]")),
    }
    for distance in range(search.MAX_DISTANCE + 1):
        found[f"scan{distance}"] = (search.scan(distance, False), search.ARGUMENTS)
        found[f"scan{distance}_paired"] = (search.scan(distance, True), search.ARGUMENTS)
    return found


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
    ptx = compiled(sources()[name], (9, 0))
    assert ".target sm_90" in ptx
    assert ".local" not in ptx
    assert "div" not in ptx
