"""What cannot fit on a GPU is refused before it is built, in one line; ``auto`` goes on."""

from __future__ import annotations

import numpy as np
import pytest

from streamer.dictionary.targets import Dictionary
from streamer.errors import StreamerError
from streamer.matching.matcher import StreamMatcher
from streamer.sequences.read_batch import ReadBatch
from tests.gpu import placement

pytestmark = placement.marks()

BASES = 5_000
CASES = {
    "a Tree Bitmap of": {"k": 12, "mode": "frozen"},
    "a set of": {"k": 15, "mode": "grow"},
    "k-mers within a distance of 2": {"k": 15, "mode": "frozen", "strands": "both", "distance": 2},
}


def reads(seed):
    bases = np.random.default_rng(seed).integers(0, 4, BASES, dtype=np.uint8)
    return ReadBatch(["r"], np.array([0, BASES]), bases)


@pytest.mark.parametrize("what", CASES)
def test_it_is_refused_before_it_is_built(what, monkeypatch):
    options = dict(CASES[what])
    k = options.pop("k")
    near = "distance" in options
    known = Dictionary.from_batches([reads(1)], k, "forward" if near else "canonical")

    def made(on_fallback, **more):
        options_ = options | {"exact": not near, "device": "cuda", "cards": (0,)} | more
        return StreamMatcher.of(known, on_fallback=on_fallback, **options_)

    def built(*_, **__):
        raise AssertionError("it was built")

    with monkeypatch.context() as patch:
        for place in (
            "streamer.matching.matcher.snapshot",
            "gpu.exact.kmer_set.KmerSet._allocate",
            "gpu.levenshtein.DeviceIndex.__init__",
            "gpu.exact.pipeline.ExactCard.__init__",
        ):
            patch.setattr(place, built)
        with pytest.raises(StreamerError, match=f"not enough GPU memory for .*{what}.* needed"):
            made(None, device_bytes=20_000)
    told = []
    found = made(told.append, device_bytes=20_000).match([reads(1)])[0]
    (line,) = told
    assert what in line
    assert line.endswith("; matching on the CPU")
    want = made(None, device="cpu", cards=()).match([reads(1)])[0]
    if near:
        assert found.near.end.tolist() == want.near.end.tolist()
    else:
        assert found.events.tolist() == want.events.tolist()
