"""Every primer kernel compiles to PTX, its vectors in registers; no card is needed."""

from __future__ import annotations

import os

import pytest

pytest.importorskip("numba_cuda", reason="PTX needs numba-cuda (extra gpu-test)")

if os.environ.get("NUMBA_ENABLE_CUDASIM") == "1":
    pytest.skip("the simulator compiles nothing", allow_module_level=True)

from ptx import compiled

from gpu.kernels.primer import sources


@pytest.mark.parametrize("capability", [(8, 0), (9, 0)], ids=["sm_80", "sm_90"])
@pytest.mark.parametrize("name", sources())
def test_every_kernel(name, capability):
    ptx = compiled(sources()[name], capability)
    assert f".target sm_{capability[0]}{capability[1]}" in ptx
    assert ".local" not in ptx


@pytest.mark.parametrize("words", [1, 19, 33])
@pytest.mark.parametrize("name", ["scan", "reach"])
def test_rows_stay_in_registers(name, words):
    ptx = compiled(sources(words)[name], (9, 0))
    assert ".local" not in ptx
    if name == "scan" and words > 1:
        # loads of the masks: at the start, behind a record, and for each symbol
        assert ptx.count("ld.shared") <= 3 * words


def test_more_rows_than_registers_still_compile():
    assert ".entry" in compiled(sources(64)["scan"], (9, 0))
