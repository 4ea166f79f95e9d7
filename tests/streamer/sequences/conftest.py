"""Tests of gzip and BGZF run over every way to decompress them."""

from __future__ import annotations

import pytest

from streamer.sequences.inflate import INFLATE


@pytest.fixture(params=["borrowed", "plain"])
def inflating(request, monkeypatch):
    """Whether ISA-L's own functions are called, or isal for each piece."""
    assert not INFLATE.missing
    if request.param == "plain":
        monkeypatch.setattr(INFLATE, "missing", ["isal_inflate"])
    return request.param
