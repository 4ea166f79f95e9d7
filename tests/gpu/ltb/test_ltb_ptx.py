"""The Levenshtein Tree Bitmap kernels compile to PTX, which needs no card."""

from __future__ import annotations

import pytest

pytest.importorskip("numba_cuda", reason="PTX needs numba-cuda (extra gpu-test)")

from gpu.ltb import sliced, sweeping
from gpu.ltb.sweeping import ARGUMENTS
from tests.gpu.ptx import CAPABILITIES, compiled

pytestmark = pytest.mark.whole

SLICED = (
    "uint64[::1]", *("uint32",) * 5, "uint32[::1]", "uint64[::1]", "uint32", "uint32[::1]",
    "uint32[::1]",
)  # fmt: skip


def sources():
    """Every kernel by name: the plain function and its argument types."""
    found = {
        "planes": (sliced.planes, ("uint8[::1]", "uint32", "uint32", "uint32", "uint64[::1]")),
        "ltb-naive": (sweeping.naive(), ARGUMENTS),
        "ltb-efficient": (sweeping.efficient(), ARGUMENTS),
        "ltb-queue": (sweeping.queue(sweeping.THREADS, sweeping.QUEUE), ARGUMENTS),
    }
    return found | {f"ltb-sliced-{d}": (sliced.sliced(d + 1), SLICED) for d in range(5)}


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
