"""The kernels of the search with k mismatches compile to PTX, which needs no card."""

from __future__ import annotations

import os
import re

import pytest

pytest.importorskip("numba_cuda", reason="PTX needs numba-cuda (extra gpu-test)")

if os.environ.get("NUMBA_ENABLE_CUDASIM") == "1":
    pytest.skip("the simulator compiles nothing", allow_module_level=True)

from ptx import compiled

from gpu.kernels.hamming import bit_sliced_source, shift_add_source, sources
from gpu.kernels.hamming.network import Network
from gpu.kernels.hamming.shape import shape_for

SHARED_BYTES = 48 * 1024


@pytest.mark.parametrize("capability", [(8, 0), (9, 0)], ids=["sm_80", "sm_90"])
@pytest.mark.parametrize("name", sources())
def test_the_kernels_for_all_patterns(name, capability):
    ptx = compiled(sources()[name], capability)
    assert f".target sm_{capability[0]}{capability[1]}" in ptx
    assert ".local" not in ptx


@pytest.mark.parametrize("words", [1, 2, 37])
def test_shift_add_keeps_its_states_in_registers(words):
    assert ".local" not in compiled(shift_add_source(words), (9, 0))


@pytest.mark.parametrize(("length", "k"), [(1, 0), (12, 4), (32, 31), (33, 8), (256, 255)])
def test_bit_sliced_counts_in_registers(length, k):
    shape = shape_for(length, k, gapped=length % 2 == 0)
    ptx = compiled(bit_sliced_source(shape), (9, 0))
    assert ".local" not in ptx
    # a load a word and symbol; one for a word's hits, one for a hit that was listed
    assert ptx.count("ld.shared.u32") >= (length if length <= 32 else 16) * shape.words + 2
    sizes = re.findall(r"\.shared .*\[(\d+)\];", ptx)
    assert 0 < sum(map(int, sizes)) <= SHARED_BYTES


def test_operations_of_a_pattern():
    """The numbers that docs/performance.md names."""
    network = Network(3)
    network.more_than([f"x{j}" for j in range(12)], 4)
    assert len(network.operations) == 17
