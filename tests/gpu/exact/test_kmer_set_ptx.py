"""The kernels of the growing set compile to PTX, which needs no card."""

from __future__ import annotations

import os

import pytest

pytest.importorskip("numba_cuda", reason="PTX needs numba-cuda (extra gpu-test)")

if os.environ.get("NUMBA_ENABLE_CUDASIM") == "1":
    pytest.skip("the simulator compiles nothing", allow_module_level=True)

from gpu.exact.kmer_set_kernels import sources
from tests.gpu.ptx import compiled


@pytest.mark.parametrize("capability", [(8, 0), (9, 0)], ids=["sm_80", "sm_90"])
@pytest.mark.parametrize("k", [1, 15, 31])
@pytest.mark.parametrize("name", sources(1, True))
def test_the_kernels_of_the_growing_set(name, k, capability):
    ptx = compiled(sources(k, True)[name], capability)
    assert f".target sm_{capability[0]}{capability[1]}" in ptx
    assert ".local" not in ptx
    if name in ("claim", "claim_filtered", "add"):
        assert "atom.global.min.u64" in ptx or "atom.min" in ptx or "red" in ptx
    if name in ("claim", "claim_filtered", "add", "rehash"):
        assert "cas" in ptx
