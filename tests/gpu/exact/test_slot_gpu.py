"""Parts of packed chunks are laid side by side, on any number of threads; buffers must fit."""

from __future__ import annotations

import numpy as np
import pytest

from gpu.card.memory import Budget
from gpu.card.packing import PackedParts, Segment, pack_chunk
from gpu.exact import pipeline
from streamer.dictionary.targets import Dictionary
from streamer.errors import StreamerError
from streamer.matching.matcher import StreamMatcher
from tests.gpu import placement
from tests.matching_results import batch_of

pytestmark = placement.marks()

K = 7


def parts_of(rng):
    """Whole chunks, and one that is cut as the first or the last."""
    parts = []
    for number in range(int(rng.integers(1, 6))):
        size = int(rng.choice([0, 1, 32, 33, *rng.integers(0, 700, 3)]))
        bases = rng.integers(0, 5, size).astype(np.uint8)
        chunk = pack_chunk(bases, np.array([0, size // 3, size]), K)
        words = chunk.starts.size
        first = int(rng.integers(0, words + 1)) if number == 0 else 0
        parts.append(Segment(chunk, first, words))
    last = parts[-1]
    if last.stop > last.first:
        parts[-1] = Segment(last.chunk, last.first, int(rng.integers(last.first, last.stop)) + 1)
    return parts


@pytest.mark.parametrize("threads", [1, 2, 5, 64])
def test_parts_are_laid_side_by_side(threads, monkeypatch):
    monkeypatch.setattr(pipeline, "LAY_WORDS", 3)
    slot = pipeline.Slot(K, 4096, 0, Budget(0))
    rng = np.random.default_rng(threads)
    for _ in range(60):
        parts = PackedParts(parts_of(rng), 64)
        starts = np.zeros(parts.symbols // 32, np.uint32)
        bases = np.zeros(parts.symbols // 16, np.uint32)
        at = 0
        for part in parts.parts:
            own, there = part.stop - part.first, part.words
            starts[at : at + own] = part.chunk.starts[part.first : part.stop]
            bases[2 * at : 2 * (at + there)] = part.chunk.bases[2 * part.first :][: 2 * there]
            at += there
        slot.pinned[0][:] = slot.pinned[1][:] = 0xA5A5A5A5
        slot.lay(parts, threads)
        assert slot.pinned[1][: starts.size].tolist() == starts.tolist()
        assert slot.pinned[0][: 2 * at].tolist() == bases[: 2 * at].tolist()
        assert (slot.pinned[1][starts.size :] == 0xA5A5A5A5).all()


@pytest.mark.parametrize("mode", ["frozen", "grow"])
def test_what_does_not_fit_a_card_is_refused_with_the_sizes(mode):
    reads = [("r", "ACGTTGCA" * 50)]
    known = Dictionary.from_batches([batch_of(reads)], 15, "forward")
    refused = pytest.raises(
        StreamerError, match=r"not enough GPU memory for .*: .* needed, .* available"
    )
    with refused:
        StreamMatcher.of(known, mode=mode, chunk=64, device="cuda", cards=(0,), device_bytes=9_000)
