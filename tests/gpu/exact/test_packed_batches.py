"""How packed batches are divided into chunks; no kernel runs."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from streamer.matching.cuda import _PER_CARD, _ROUNDS, PackedMatching


@pytest.mark.parametrize("cards", [1, 2, 3])
@pytest.mark.parametrize("chunk", [64, 1 << 20, 1 << 25])
def test_packed_batches_are_shared_by_all_cards(cards, chunk):
    """Each gets a chunk that is worth it, and no more of them than fit or overlap."""
    engine = SimpleNamespace(chunk=chunk, cards=[None] * cards, k=5)
    path = PackedMatching(engine, "default", 1)
    for words in (1, 2, 100, 1 << 16, 1 << 18, (1 << 20) - 1, 1 << 20, 1 << 23, 12_345_678):
        room = path._shared_room(words)
        assert 2 <= room <= chunk // 32
        # a chunk that ends in a cut holds one word less
        chunks = -(-words // (room - 1))
        if 32 * words > 2 * cards * _PER_CARD:
            assert chunks >= cards
        fit = -(-words // cards // (chunk // 32 - 1)) + 1
        assert chunks <= cards * max(_ROUNDS, fit)
