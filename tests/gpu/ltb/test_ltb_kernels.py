"""The Levenshtein Tree Bitmap kernels against a plain set of states."""

from __future__ import annotations

import numpy as np
import pytest

import gpu.ltb
from gpu.card.cuda_errors import CardMemoryError
from gpu.exact import device_tree
from gpu.ltb import DeviceLtb, LtbEngine, TooManyQueueNodesError, sliced, sweeping
from streamer.device_choice import GpuOrCpu
from streamer.errors import StreamerError
from streamer.matching.near import LtbSolver, Step
from streamer.matching.spec import MatchSpec
from streamer.sequences.read_batch import ReadBatch
from tests.gpu import placement
from tests.gpu.cases import ltb_bitmaps
from tests.gpu.placement import SIMULATED
from tests.reference import ltb
from trie.ltb import approximate
from trie.trees.hybrid_tree import snapshot
from trie.windows import BatchShapeError

pytestmark = placement.marks()

KERNELS = ("ltb-sliced", "ltb-naive", "ltb-efficient", "ltb-queue")


@pytest.fixture(scope="module", autouse=True)
def lockstep_warps():
    """Blocks that the simulator can carry, and queues that fill."""
    with placement.small_blocks(32, sweeping, sliced, device_tree) as patch:
        if SIMULATED:
            patch.setattr(sweeping, "QUEUE", 40)
        yield


def chosen():
    """Every k with every D on a card; in the simulator small tries, every k and D once."""
    if SIMULATED:
        cases = [
            ltb.make(k, at % min(5, k), 5, kmers=12, reads=3, length=8, gaps=0.1)
            for at, k in enumerate(ltb.EDGE_K)
        ]
        cases += [ltb.make(7, 4, 6, kmers=4, reads=1, length=14)]
        cases += [case for case in ltb.awkward() if case.k < 31]
        return [shortened(case) for case in cases]
    return ltb.edges(20, reads=2) + ltb.awkward()


def shortened(case):
    """A few symbols, for each takes the simulator a tenth of a second."""
    reads, room = [], case.k + min(case.distance, 2) + 1
    kmers = case.kmers[:: 1 if len(case.kmers) in range(31) or case.k == 3 else 3][:120]
    for read in case.reads:
        reads.append(read[:room])
        room -= len(reads[-1])
    return ltb.Case(case.name, case.k, case.distance, kmers, tuple(reads))


def found(case, method):
    tree = DeviceLtb(snapshot(case.codes, case.k))
    return ltb_bitmaps(tree, case.bases, case.offsets, case.distance, method=method)


def agrees(got, wanted, what):
    for side, one, other in zip(("matches", "mismatches"), got, wanted, strict=True):
        np.testing.assert_array_equal(one, other, err_msg=f"{what}: {side}")


@pytest.mark.parametrize(("at", "case"), [*enumerate(chosen())], ids=str)
def test_every_kernel_equals_the_set_of_states(at, case):
    """In the simulator the default for every case, and the thesis's in turn."""
    wanted = case.expected()
    for method in (KERNELS[0], KERNELS[1 + at % 3]) if SIMULATED else KERNELS:
        agrees(found(case, method), wanted, f"{case.name} {method}")


STREAMS = (
    (1, 0, 3, 3000, 7), (6, 2, 3000, 50_000, 300), (9, 4, 500, 20_000, 9),
    (12, 1, 20_000, 70_001, 3), (12, 2, 75_000, 30_000, 1), (15, 4, 2000, 30_000, 1000),
    (24, 3, 96, 300_000, 40), (31, 4, 300, 60_000, 60), (31, 0, 5000, 40_000, 2),
)  # fmt: skip


@placement.NO_GPU
@pytest.mark.parametrize(("k", "distance", "kmers", "total", "reads"), STREAMS)
def test_every_kernel_equals_the_cpu(k, distance, kmers, total, reads):
    codes, bases, offsets = ltb.stream(k, kmers, total, reads, 11)
    tree = snapshot(codes, k)
    wanted = approximate(tree, bases, offsets, distance, threads=4)
    assert np.count_nonzero(wanted[0]) > total // (10 * k)
    there = DeviceLtb(tree)
    for method in KERNELS:
        agrees(ltb_bitmaps(there, bases, offsets, distance, method=method), wanted, method)


@pytest.mark.parametrize("entries", [32, 33, 64])
def test_a_queue_that_fills_loses_nothing(entries, monkeypatch):
    """With one node a level, and with several, whose children the lanes of a warp queue."""
    monkeypatch.setattr(sweeping, "QUEUE", entries)
    monkeypatch.setattr(sweeping, "THREADS", 64)  # two queues
    letters = "ACGT"
    kmers = tuple(a + b + c for a in letters for b in letters for c in letters)
    for case in (
        ltb.Case("every 3-mer", 3, 2, kmers, ("ACGTN", "GG")),
        ltb.make(7, 1, 5, kmers=60, reads=1, length=9),
    ):
        agrees(found(case, "ltb-queue"), case.expected(), f"{case.name} {entries} entries")


def test_pieces_of_any_length_agree(monkeypatch):
    case = shortened(ltb.make(4, 2, 9, kmers=20, reads=2, length=20))
    for shortest in (1, 7, 1000):
        monkeypatch.setattr(gpu.ltb, "SHORTEST_PIECE", shortest)
        for blocks in (1, 3):
            monkeypatch.setattr(sweeping, "BLOCKS", blocks)
            agrees(found(case, "ltb-efficient"), case.expected(), f"{shortest} {blocks}")


@pytest.mark.parametrize("warps", [1, 5, 100_000])
def test_a_trie_cut_up_on_any_level_agrees(warps, monkeypatch):
    monkeypatch.setattr(gpu.ltb, "SLICED_WARPS", warps)
    for k, distance in ((3, 2), (7, 0), (8, 3)):
        case = ltb.make(k, distance, 12, kmers=12, reads=7, length=25)
        agrees(found(case, "ltb-sliced"), case.expected(), f"{k} {distance}")


@pytest.mark.parametrize(
    ("streams", "chunk", "cards"), [(1, 8, 1), (2, 11, 1), (3, 9, 1), (2, 1000, 1), (2, 9, 2)]
)
def test_chunks_on_streams_agree(streams, chunk, cards):
    engine = LtbEngine(5, 2, chunk=chunk, streams=streams, cards=(0,) * cards)
    for seed in (14, 15):  # another snapshot, and then one of the same again
        case = ltb.make(5, 2, seed, kmers=10, reads=3, length=9)
        tree = snapshot(case.codes, 5)
        for _ in range(2 if chunk == 11 else 1):
            agrees(engine.match(tree, case.bases, case.offsets), case.expected(), case.name)
    engine.close()


def test_a_card_that_is_too_small_is_told():
    with pytest.raises(CardMemoryError, match="memory for the buffers of a chunk: "):
        LtbEngine(5, 2, chunk=1000, memory_bytes=100)
    engine = LtbEngine(5, 2, chunk=1000, memory_bytes=40_000)
    tree = snapshot(np.arange(1000, dtype=np.uint64), 5)
    with pytest.raises(CardMemoryError, match=f"a dictionary of {tree.node_count} trie-nodes"):
        engine.match(tree, np.zeros(10, dtype=np.uint8), np.array([0, 10]))
    engine.close()


def test_what_cannot_be_matched_is_refused(monkeypatch):
    tree = DeviceLtb(snapshot(np.arange(20, dtype=np.uint64), 4))
    bases, offsets = np.zeros(10, dtype=np.uint8), np.array([0, 10])
    with pytest.raises(ValueError, match="distance"):
        ltb_bitmaps(tree, bases, offsets, 4)
    with pytest.raises(BatchShapeError):
        ltb_bitmaps(tree, bases, np.array([0, 9]), 1)
    monkeypatch.setattr(sweeping, "NODES", 3)
    with pytest.raises(TooManyQueueNodesError, match="trie-nodes"):
        ltb_bitmaps(tree, bases, offsets, 1, method="ltb-queue")


def solved(case, told, **options):
    spec = MatchSpec(
        k=case.k, distance=case.distance, semantics="ltb", strands="forward", chunk=9,
        device="cuda", cards=(0,), **options,
    )  # fmt: skip
    solver = LtbSolver(spec, GpuOrCpu(told, "matching"), threads=1)
    batch = ReadBatch.from_sequences([str(i) for i in range(len(case.reads))], case.reads)
    tree = snapshot(np.unique(case.codes), case.k)
    words = solver.match(batch, Step(0, batch.bases.size, 1, tree))
    solver.close()
    return words


def agrees_by_end(words, case):
    for got, wanted in zip((words.matches, words.mismatches), case.expected(), strict=True):
        there = np.zeros(wanted.size, dtype=np.uint32)
        there[words.end - 1] = got
        np.testing.assert_array_equal(there, wanted, err_msg=case.name)


@pytest.mark.parametrize("method", ["auto", "sliced", "ltb-efficient"])
def test_the_solver_on_a_card(method):
    case = shortened(ltb.make(5, 1, 33, kmers=8, reads=3, length=9))
    agrees_by_end(solved(case, None, kernel=method), case)


def test_a_solver_whose_card_fails_goes_on_on_the_cpu():
    case = ltb.make(5, 1, 34, kmers=8, reads=3, length=9)
    for bytes_there in (50, 30_000):  # for the buffers, and then for the dictionary
        told = []
        agrees_by_end(solved(case, told.append, device_bytes=bytes_there), case)
        assert len(told) == 1
        assert "matching on the CPU" in told[0]
        with pytest.raises(StreamerError, match="not enough GPU memory"):
            solved(case, None, device_bytes=bytes_there)
