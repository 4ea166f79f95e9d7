"""Batches packed together against each packed alone."""

from __future__ import annotations

import numpy as np

from gpu.card.packing import pack_letters
from streamer.matching import cuda
from streamer.matching.cuda import pack_batches
from streamer.protocol.wire import crc32c


def test_batches_packed_together_are_as_each_alone(monkeypatch):
    monkeypatch.setattr(cuda, "_PACKED_PER_THREAD", 1)
    rng = np.random.default_rng(11)
    batches = []
    for size in (0, 1, 33, 5_000, 0, 40_000, 64, 9_999):
        letters = rng.choice(np.frombuffer(b"ACGTacgtNNRy", np.uint8), size)
        inner = np.sort(rng.integers(0, size + 1, 5)) if size else np.zeros(2, np.int64)
        batches.append((letters, np.concatenate(([0], inner, [size])).astype(np.int64)))
    wrong = {
        2: (np.frombuffer(b"ACGT-", np.uint8), np.array([0, 5])),
        4: (np.frombuffer(b"ACGT", np.uint8), np.array([0, 3])),
        5: (np.frombuffer(b"ACGT", np.uint8), np.array([0, 3, 2, 4])),
        7: (np.frombuffer(b"ACGT", np.uint8), np.array([1, 4])),
        9: (np.frombuffer(b"ACGT", np.uint8), np.zeros(0, np.int64)),
    }
    for at, batch in wrong.items():
        batches.insert(at, batch)
    columns = [([], offsets, memoryview(letters)) for letters, offsets in batches]
    for k, threads in ((1, 1), (21, 3), (31, 2)):
        sums = np.arange(len(batches), dtype=np.uint32)
        for at, packed in enumerate(pack_batches(columns, sums, k, threads)):
            if at in wrong:
                assert packed is None
                continue
            letters, offsets = batches[at]
            alone = pack_letters(letters, offsets, k)
            assert packed.symbols == letters.size
            assert sums[at] == crc32c([letters.tobytes()], at)
            np.testing.assert_array_equal(packed.bases, alone.bases)
            np.testing.assert_array_equal(packed.starts, alone.starts)
