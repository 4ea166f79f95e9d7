"""The kernels of the search with k mismatches compile to PTX, which needs no card."""

from __future__ import annotations

import re

import pytest

pytest.importorskip("numba_cuda", reason="PTX needs numba-cuda (extra gpu-test)")


from gpu import hamming
from gpu.hamming import bit_sliced, paper, sorting
from gpu.hamming.network import WORDS, Network, shape_for
from tests.gpu.ptx import CAPABILITIES, compiled

pytestmark = pytest.mark.whole

SHARED_BYTES = 48 * 1024

PMASM = ("uint8[::1]", "uint32", "uint32[:,:,::1]", "uint32", "uint32", "int32[:,::1]")
SORT = ("uint64[::1]", "uint32[::1]", "uint32", "uint64[::1]", "uint64[::1]")


def sources():
    """The kernels for all patterns: the plain functions and the names of their argument types."""
    found = {
        "naive": (paper.naive, ("uint8[::1]", "uint32", "uint8[:,::1]", "uint32", "int32[:,::1]")),
        "tally": (sorting.tally, ("uint64[::1]", "uint32", "uint32[::1]")),
        "begins": (sorting.begins(sorting.MANY_THREADS), ("uint32[::1]", "uint32[::1]")),
        "place": (sorting.place, ("uint64[::1]", "uint32", "uint32[::1]", "uint64[::1]")),
        "sort-few": (sorting.sort(sorting.FEW_THREADS, sorting.FEW), SORT),
        "sort-many": (sorting.sort(sorting.MANY_THREADS, 0), SORT),
    }
    return found | {name: (kernel, PMASM) for name, kernel in paper.KERNELS.items()}


def shift_add_source(words):
    arguments = ("uint8[::1]", "uint32", "uint64[:,:,::1]", *["uint32"] * 5, "int32[:,::1]")
    return paper.shift_add(words), arguments


def bit_sliced_source(shape):
    arguments = (
        "uint32[:,::1]", "uint32", "uint32", "uint32", "uint32[::1]", "uint32", "uint32", "uint32",
        "uint64[::1]", "uint32", "uint32", "uint32", "uint32[::1]", "uint32", "uint64[::1]",
    )  # fmt: skip
    return bit_sliced.bit_sliced(shape), arguments


def pigeonhole_source(length):
    arguments = (
        "uint32[:,::1]", "uint32", "uint32", "uint64[::1]", "uint32[::1]", "uint32[::1]",
        "uint32[:,::1]", "uint32", "uint64[::1]", "uint32", "uint32", "uint32[::1]", "uint32",
        "uint64[::1]",
    )  # fmt: skip
    return hamming.pigeonhole(length), arguments


@pytest.mark.parametrize("capability", CAPABILITIES)
@pytest.mark.parametrize("name", sources())
def test_the_kernels_for_all_patterns(name, capability):
    ptx = compiled(sources()[name], capability)
    assert f".target sm_{capability[0]}{capability[1]}" in ptx
    assert ".local" not in ptx


@pytest.mark.parametrize("length", [4, 12])
def test_pigeonhole_keeps_all_in_registers(length):
    assert ".local" not in compiled(pigeonhole_source(length), (9, 0))


@pytest.mark.parametrize("words", [1, 2, 37])
def test_shift_add_keeps_its_states_in_registers(words):
    assert ".local" not in compiled(shift_add_source(words), (9, 0))


@pytest.mark.parametrize(
    ("length", "k", "major"),
    [(1, 0, 9), (12, 4, 8), (12, 4, 9), (32, 31, 9), (33, 8, 8), (256, 255, 9)],
)
def test_bit_sliced_counts_in_registers(length, k, major):
    shape = shape_for(length, k)
    ptx = compiled(bit_sliced_source(shape), (major, 0))
    assert ".local" not in ptx
    # a load a word and symbol; one for a word's hits, one for a hit that was listed
    words = ptx.count("ld.shared.u32") + 2 * ptx.count("ld.shared.v2.u32")
    assert words >= shape.loaded * WORDS + 2
    sizes = re.findall(r"\.shared .*\[(\d+)\];", ptx)
    assert 0 < sum(map(int, sizes)) <= SHARED_BYTES


def test_operations_of_a_pattern():
    """The numbers that docs/performance/hamming.md names."""
    for branched, operations in ((0, 17), (3, 18), (5, 19), (12, 23)):
        network = Network()
        network.complement(network.more_than(12, branched, 4))
        assert len(network.names()) == operations
