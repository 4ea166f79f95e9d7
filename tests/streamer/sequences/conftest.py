"""What tests of reading start from."""

from __future__ import annotations

from functools import partial

import pytest

from streamer.sequences.bgzf import INFLATE
from tests.streamer.sequences.kit import set_sizes


@pytest.fixture(params=["borrowed", "plain"])
def inflating(request, monkeypatch):
    """Every way to decompress: whether ISA-L's own functions are called, or isal for each piece."""
    assert not INFLATE.missing
    if request.param == "plain":
        monkeypatch.setattr(INFLATE, "missing", ["isal_inflate"])
    return request.param


@pytest.fixture
def sizes(monkeypatch):
    """Sets the sizes of regions and of blocks."""
    return partial(set_sizes, monkeypatch)
