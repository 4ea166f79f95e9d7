"""Every primer kernel compiles to PTX, its vectors in registers; no card is needed."""

from __future__ import annotations

import pytest

pytest.importorskip("numba_cuda", reason="PTX needs numba-cuda (extra gpu-test)")

from tests.gpu.primer.primer_sources import sources
from tests.gpu.ptx import compiled

pytestmark = pytest.mark.whole


@pytest.mark.parametrize("name", sources())
def test_every_kernel(name):
    ptx = compiled(sources()[name], (9, 0))
    assert ".target sm_90" in ptx
    assert ".local" not in ptx


def test_the_oldest_card():
    assert ".target sm_80" in compiled(sources()["pack"], (8, 0))


@pytest.mark.parametrize("words", [1, 33])
@pytest.mark.parametrize("name", ["scan", "extend"])
def test_rows_stay_in_registers(name, words):
    ptx = compiled(sources(words)[name], (9, 0))
    assert ".local" not in ptx
    if name == "scan" and words > 1:
        # loads of the masks: at the start, behind a record, and for each symbol
        assert ptx.count("ld.shared") <= 3 * words
