"""Every kernel compiles to PTX, which needs the compiler's libraries but no card."""

from __future__ import annotations

import pytest

pytest.importorskip("numba_cuda", reason="PTX needs numba-cuda (extra gpu-test)")

from gpu.exact.bucket_table import choose_shape
from tests.gpu.exact.sources import bucket_sources, sources
from tests.gpu.ptx import CAPABILITIES, compiled

pytestmark = pytest.mark.whole

PER_K = ("walk", "walk_canonical", "walk_words", "walk_canonical_words", "shuffle", "shuffle_words")
SHAPES = (choose_shape(15, 10_000_000), choose_shape(31, 10_000_000))


@pytest.mark.parametrize("capability", CAPABILITIES)
@pytest.mark.parametrize("name", [name for name in sources(1) if name not in PER_K])
def test_the_kernels_for_every_k(name, capability):
    ptx = compiled(sources(15)[name], capability)
    assert f".target sm_{capability[0]}{capability[1]}" in ptx
    assert ".local" not in ptx


@pytest.mark.parametrize("name", PER_K)
@pytest.mark.parametrize(
    ("k", "capability"), [(2, (9, 0)), (15, (8, 0)), (15, (9, 0)), (31, (9, 0))]
)
def test_the_kernels_made_for_one_k(name, k, capability):
    ptx = compiled(sources(k)[name], capability)
    assert f".target sm_{capability[0]}{capability[1]}" in ptx
    assert ".local" not in ptx
    if name.startswith("shuffle"):
        assert "shfl.sync.up" in ptx


@pytest.mark.parametrize("capability", CAPABILITIES)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_the_kernels_of_the_bucket_table(shape, capability):
    for name, source in bucket_sources(shape).items():
        ptx = compiled(source, capability)
        assert ".local" not in ptx, name
        if name == "buckets":
            assert ptx.count("ld.global.nc.v2.u64") >= shape.words // 2
