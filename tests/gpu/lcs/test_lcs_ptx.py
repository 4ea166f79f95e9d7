"""The kernels of the longest common subsequence compile to PTX, which needs no card."""

from __future__ import annotations

import re
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("numba_cuda", reason="PTX needs numba-cuda (extra gpu-test)")

from gpu.lcs.systolic import SHAPES
from tests.gpu.lcs.lcs_sources import sources
from tests.gpu.ptx import CAPABILITIES, compiled

pytestmark = pytest.mark.whole

SHARED_BYTES = 48 * 1024


@pytest.mark.parametrize("capability", CAPABILITIES)
@pytest.mark.parametrize("name", [name for name in sources(SHAPES[0]) if name != "systolic"])
def test_the_kernels_of_every_shape(name, capability):
    ptx = compiled(sources(SHAPES[0])[name], capability)
    assert f".target sm_{capability[0]}{capability[1]}" in ptx
    assert ".local" not in ptx


@pytest.mark.parametrize("capability", CAPABILITIES)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_the_systolic_kernel_keeps_its_words_in_registers(shape, capability):
    ptx = compiled(sources(shape)["systolic"], capability)
    assert ".local" not in ptx
    # two steps of four columns, for low strips four times after another, and nothing else carries
    copies = ptx.count("dp4a.u32.u32") // (2 * 4)
    assert copies == (1 if shape.words > 4 else 4)
    assert ptx.count("addc.cc.u32") == copies * 2 * 4 * shape.words
    assert ptx.count("shfl.sync.up") == copies * 2 * 2
    assert len(re.findall(r"lop3\.b32[^;]*0xF4;", ptx)) == copies * 2 * 4 * shape.words
    assert ptx.count("ld.relaxed.gpu.global.u64") == 3
    assert ptx.count("st.relaxed.gpu.global.u64") == 1
    shared = sum(map(int, re.findall(r"\.shared [^\[]*\[(\d+)\]", ptx)))
    assert 0 < shared <= SHARED_BYTES
    vector = {1: "", 2: ".v2", 4: ".v4"}[min(shape.words, 4)]
    assert ptx.count(f"ld.shared{vector}.u32") >= 2 * 4 * max(1, shape.words // 4)


def test_strips_are_as_high_as_lets_them_end_together(monkeypatch):
    import gpu.lcs

    monkeypatch.setattr(gpu.lcs, "_multiprocessors", lambda: 132)

    def chosen(rows, columns, symbols=4, count=2):
        each = SimpleNamespace(rows=np.full(count, rows), columns=np.full(count, columns))
        return gpu.lcs.shape_for(symbols, each).words

    low, tall = (shape.words for shape in SHAPES[:2])
    assert chosen(100_000, 100_000) == low
    assert chosen(4_000_000, 2_000_000) == low
    assert chosen(5_000_000, 2_500_000) == tall
    assert chosen(5_000_000, 2_500_000, symbols=20) == 4
    assert chosen(5_000_000, 2_500_000, symbols=200) == 1
