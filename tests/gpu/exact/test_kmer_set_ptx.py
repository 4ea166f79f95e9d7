"""The kernels of the growing set compile to PTX, which needs no card."""

from __future__ import annotations

import pytest

pytest.importorskip("numba_cuda", reason="PTX needs numba-cuda (extra gpu-test)")

from tests.gpu.exact.sources import kmer_set_sources as sources
from tests.gpu.ptx import CAPABILITIES, compiled

pytestmark = pytest.mark.whole


@pytest.mark.parametrize("capability", CAPABILITIES)
@pytest.mark.parametrize("k", [15, 31])
@pytest.mark.parametrize("name", sources(1, True))
def test_the_kernels_of_the_growing_set(name, k, capability):
    ptx = compiled(sources(k, True)[name], capability)
    assert f".target sm_{capability[0]}{capability[1]}" in ptx
    assert ".local" not in ptx
    if name in ("claim", "claim_filtered", "add"):
        assert "atom.global.min.u64" in ptx or "atom.min" in ptx or "red" in ptx
    if name in ("claim", "claim_filtered", "add", "rehash"):
        assert "cas" in ptx
