"""Chunks, streams and several sets give what the CPU gives."""

from __future__ import annotations

import numpy as np
import pytest

from gpu import levenshtein as near
from gpu.exact import CudaEngineError
from gpu.levenshtein import NearEngine, search
from streamer.device_choice import GpuOrCpu
from streamer.dictionary.targets import Dictionary
from streamer.matching import near as near_solver
from streamer.matching.matcher import StreamMatcher
from streamer.matching.near import LevenshteinSolver, Step
from streamer.matching.spec import MatchSpec
from streamer.sequences.read_batch import ReadBatch
from tests.gpu import placement
from tests.gpu.placement import SIMULATED
from trie.levenshtein import Patterns

pytestmark = placement.marks()


@pytest.fixture(scope="module", autouse=True)
def small_blocks():
    with placement.small_blocks(64, search):
        yield


@pytest.fixture(autouse=True)
def chunks_as_asked(monkeypatch):
    """Short chunks are not put together."""
    monkeypatch.setattr(near_solver, "LONG_SPAN", 0)


def batch_of(total, codes, k):
    rng = np.random.default_rng(9)
    bases = rng.integers(0, 4, total).astype(np.uint8)
    for at in range(3, total - k, k + 9):
        code = int(codes[rng.integers(0, codes.size)])
        bases[at : at + k] = [(code >> (2 * (k - 1 - i))) & 3 for i in range(k)]
        bases[at + int(rng.integers(0, k))] = rng.integers(0, 5)
    offsets = np.array([0, total // 3, total // 3, total], dtype=np.int64)
    return ReadBatch(["a", "b", "c"], offsets, bases)


def columns(found):
    return [
        getattr(found, name).tolist() for name in ("end", "length", "distance", "strand", "code")
    ]


def solvers(k, distance, codes, *, threads=1, **options):
    spec = {"k": k, "distance": distance, "strands": "both", "cards": (0,)}
    on_cpu = MatchSpec(**spec)
    on_card = MatchSpec(**(spec | options), device="cuda")
    return [
        LevenshteinSolver(codes, one, GpuOrCpu(None, "matching"), threads)
        for one in (on_cpu, on_card)
    ]


@pytest.mark.parametrize(
    ("streams", "chunk", "places", "cards"),
    [
        (1, 50, 20, 1), (2, 40, 0.1, 1), (2, 9, 20, 1), (1, 30, 0.1, 1), (2, 60, 0.5, 1),
        (2, 20, 20, 2), (1, 30, 0.1, 3),
    ],
)  # fmt: skip
def test_chunks_streams_and_cards_do_not_show(streams, chunk, places, cards, monkeypatch):
    # with places for all hits these are listed, else some chunks give the words of all ends
    monkeypatch.setattr(near, "found_size", lambda symbols: int(places * symbols) + 2)

    # a chunk is packed in parts
    monkeypatch.setattr(search, "PART", 64)
    scale = 1 if SIMULATED else 500
    rng = np.random.default_rng(1)
    codes = np.unique(rng.integers(0, 4**9, 8, dtype=np.uint64))
    batch = batch_of(130 * scale, codes, 9)
    options = {"streams": streams, "chunk": chunk * scale, "cards": (0,) * cards}
    on_cpu, on_card = solvers(9, 2, codes, threads=2, **options)
    total = batch.bases.size
    for first, stop in ((0, total), (total // 2, total - 5)):
        step = Step(first, stop, 1)
        want = columns(on_cpu.match(batch, step))
        assert len(want[0]) > 10
        assert columns(on_card.match(batch, step)) == want, (first, stop)
    on_card.close()


def test_a_dictionary_that_grows_is_several_sets():
    rng = np.random.default_rng(2)
    codes = np.unique(rng.integers(0, 4**8, 200, dtype=np.uint64))
    batch = batch_of(90, codes, 8)
    on_cpu, on_card = solvers(8, 1, codes[:150])
    step = Step(0, 90, 1)
    assert columns(on_card.match(batch, step)) == columns(on_cpu.match(batch, step))
    for part in (codes[150:155], codes[155:180], codes[100:]):
        for solver in (on_cpu, on_card):
            solver.learn(part)
        want = columns(on_cpu.match(batch, step))
        assert columns(on_card.match(batch, step)) == want
    assert len(want[0]) > 10
    on_card.close()


def test_batches_are_matched_in_turn_on_a_card():
    """Neither threads nor forked processes share its engine."""
    known = Dictionary.from_batches([batch_of(60, np.arange(8), 9)], 9, "both")
    asked = {"distance": 1, "exact": False, "chunk": 40, "cards": (0,)}
    on_cpu, on_card = (
        StreamMatcher.of(known, device=device, on_fallback=lambda line: None, **asked)
        for device in ("cpu", "cuda")
    )
    assert (on_cpu.device, on_cpu.side_by_side) == ("cpu", True)
    assert (on_card.device, on_card.side_by_side) == ("cuda", False)
    on_card.close()


def test_more_hits_than_the_list_holds():
    total = 64 if SIMULATED else 300_000
    batch = ReadBatch(["a"], np.array([0, total], dtype=np.int64), np.zeros(total, dtype=np.uint8))
    on_cpu, on_card = solvers(5, 1, np.array([0, 1], dtype=np.uint64), chunk=40)
    step = Step(0, min(total, 4_000), 1)
    want = columns(on_cpu.match(batch, step))
    assert len(want[0]) == step.stop - 3
    assert columns(on_card.match(batch, step)) == want
    on_card.close()


def test_tables_that_do_not_fit_are_told():
    codes = np.arange(5_000, dtype=np.uint64)
    patterns = Patterns.of(codes, 12, 1, both=True)
    engine = NearEngine(12, 1, chunk=100, memory_bytes=100_000)
    with pytest.raises(CudaEngineError, match="memory for an index of 10000 patterns: "):
        list(engine.match(list, [patterns], np.zeros(50, np.uint8), np.array([0, 50]), 0, 50))
    with pytest.raises(CudaEngineError, match="memory for the buffers of a chunk: "):
        NearEngine(12, 1, chunk=1_000_000, memory_bytes=100_000)
