"""The kernels of the longest common subsequence compile to PTX, which needs no card."""

from __future__ import annotations

import os
import re

import pytest

pytest.importorskip("numba_cuda", reason="PTX needs numba-cuda (extra gpu-test)")

if os.environ.get("NUMBA_ENABLE_CUDASIM") == "1":
    pytest.skip("the simulator compiles nothing", allow_module_level=True)

from ptx import compiled

from gpu.kernels.lcs import SHAPES, sources

SHARED_BYTES = 48 * 1024


@pytest.mark.parametrize("capability", [(8, 0), (9, 0)], ids=["sm_80", "sm_90"])
@pytest.mark.parametrize("name", [name for name in sources(SHAPES[0]) if name != "systolic"])
def test_the_kernels_of_every_shape(name, capability):
    ptx = compiled(sources(SHAPES[0])[name], capability)
    assert f".target sm_{capability[0]}{capability[1]}" in ptx
    assert ".local" not in ptx


@pytest.mark.parametrize("capability", [(8, 0), (9, 0)], ids=["sm_80", "sm_90"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_the_systolic_kernel_keeps_its_words_in_registers(shape, capability):
    ptx = compiled(sources(shape)["systolic"], capability)
    assert ".local" not in ptx
    # eight steps of four columns stand one after another, and nothing else carries
    assert ptx.count("addc.cc.u32") == 8 * 4 * shape.words
    assert ptx.count("shfl.sync.up") == 2 * 8
    assert len(re.findall(r"lop3\.b32[^;]*0xF4;", ptx)) == 8 * 4 * shape.words
    assert ptx.count("ld.relaxed.gpu.global.u64") == 3
    assert ptx.count("st.relaxed.gpu.global.u64") == 1
    shared = sum(map(int, re.findall(r"\.shared [^\[]*\[(\d+)\]", ptx)))
    assert 0 < shared <= SHARED_BYTES
    vector = {1: "", 2: ".v2", 4: ".v4"}[min(shape.words, 4)]
    assert ptx.count(f"ld.shared{vector}.u32") >= 8 * 4 * max(1, shape.words // 4)
