"""Every method of asm on CUDA against brute force."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.inputs import batch_of
from gpu.asm import Searcher, TooManyHitsError, bit_parallel, listing, paper
from streamer.batch import asm
from streamer.batch.asm.blocks import of_pieces
from streamer.batch.asm.pattern_masks import masks_of, searches
from streamer.batch.choice import Choice
from streamer.sequences.record_buffer import TextPiece
from tests.gpu import placement
from tests.gpu.placement import SIMULATED
from tests.reference import asm as asm_oracle
from trie.codes import encode

pytestmark = placement.marks()

METHODS = ("bit-parallel", "pasm", "wspasm", "wspasm-shared")
LENGTHS = (1, 2, 7, 8, 31, 32, 33, 63, 64, 65, 127, 300)


@pytest.fixture(scope="module", autouse=True)
def lockstep_warps():
    """Blocks that the simulator can carry."""
    with placement.small_blocks(32, listing, paper, bit_parallel) as patch:
        if SIMULATED:
            patch.setattr(bit_parallel, "HITS", 50)
            patch.setattr(bit_parallel, "PIECES", 2)
            placement.small_pieces(patch, 256)
            patch.setattr(paper, "STEPS", 2)
            patch.setattr(listing, "LISTED", 8)
            patch.setattr(bit_parallel, "TILE", 32)
            patch.setattr(bit_parallel, "ROWS", 8)
        yield


def letters(rng, size, alphabet="ACGT"):
    return "".join(rng.choice(list(alphabet), size))


def found(text, patterns, k, method, *, lead=0, iupac=False):
    searcher = Searcher([masks_of(p, iupac=iupac) for p in patterns], k, method)
    ends, distances, numbers = searcher.search(encode(text), lead, 1 << 40)
    return list(zip(numbers.tolist(), ends.tolist(), distances.tolist(), strict=True))


def truth(text, patterns, k, *, lead=0, iupac=False):
    return [
        (number, end, distance)
        for number, pattern in enumerate(patterns)
        for end, distance in enumerate(asm_oracle.last_row(text, pattern, iupac))
        if end > lead and distance <= k
    ]


def agree(text, patterns, k, method, **options):
    case = f"{method} n={len(text)} k={k} {patterns} {options}"
    wanted = truth(text, patterns, k, **options)
    assert found(text, patterns, k, method, **options) == wanted, case
    return len(wanted)


def chosen():
    """(method, pattern length, k); in the simulator fewer, for each row takes its time."""
    cases = []
    for method in METHODS:
        for length in LENGTHS:
            for k in sorted({0, 1, 2, 6, length - 1}):
                if k < length:
                    cases.append((method, length, k))
    if not SIMULATED:
        return cases
    few = [case for case in cases if case[1] in (1, 2, 8) and case[2] in (0, case[1] - 1)]
    # a strip has 8 rows here, a block of the warp kernels 32 columns
    few += [("bit-parallel", 9, 8), ("bit-parallel", 17, 2), ("wspasm", 30, 2)]
    few += [("wspasm-shared", 20, 6)]
    return few


@pytest.mark.parametrize(("method", "length", "k"), chosen(), ids=str)
def test_pattern_lengths_and_distances(method, length, k):
    rng = np.random.default_rng(100 * length + k)
    size = 40 + length if SIMULATED else 1500
    text = letters(rng, size, "ACGTN" if k == 1 else "ACGT")
    start = size // 3
    pattern = text[start : start + length].replace("N", "A")
    text = text[:start] + pattern + text[start + length :]
    patterns = [pattern] if SIMULATED else [pattern, letters(rng, length)]
    assert agree(text, patterns, k, method) > 0


def sizes():
    if SIMULATED:
        return [1, 31, 32, 33, 70]
    return [1, 31, 32, 33, 1000, 65_535, 65_536, 65_537]


@pytest.mark.parametrize("size", sizes())
@pytest.mark.parametrize("method", METHODS)
def test_texts_around_the_edges(method, size):
    rng = np.random.default_rng(size)
    text = letters(rng, size, "ACGTN")
    agree(text, ["ACGA"], 1, method, lead=size // 3)


@pytest.mark.parametrize("method", METHODS)
def test_segments_join_without_a_seam(method):
    """Several threads' segments, and several blocks of the warp kernels."""
    rng = np.random.default_rng(1)
    size = 1100 if SIMULATED else 5_000_000
    if SIMULATED and method != "bit-parallel":
        size = 90
    text = letters(rng, size)
    if SIMULATED:
        agree(text, ["ACG"], 1, method)
        return
    # too long for plain Python: the CPU's method, which is held against it elsewhere
    wanted = asm.search(text, ["ACGTTACG"], 2, strands="forward", device="cpu")
    got = found(text, ["ACGTTACG"], 2, method)
    assert [end for _, end, _ in got] == wanted["end"].tolist()
    assert [distance for _, _, distance in got] == wanted["distance"].tolist()


@pytest.mark.parametrize("method", METHODS)
def test_several_patterns_and_ambiguity_letters(method):
    rng = np.random.default_rng(2)
    text = letters(rng, 60 if SIMULATED else 3000, "ACGTN")
    patterns = ["ACGA", "NRYT", "TTACGAT"] if SIMULATED else ["ACGA", "NRYT", "TTACGAT", "BDHVNKM"]
    agree(text, patterns, 1, method, iupac=True)
    agree(text, patterns[:2], 1, method)


def test_several_engines_of_a_gpu(monkeypatch):
    """Blocks go to them in turn; some have too many hits and are cut, so parts differ in number."""
    rng = np.random.default_rng(5)
    size = 150 if SIMULATED else 30_000
    monkeypatch.setattr(asm, "SHARED_BLOCK", size // 5)
    monkeypatch.setattr(asm, "ROWS_AT_ONCE", size // 20)
    text = letters(rng, size) + "A" * (size // 3) + letters(rng, size)
    piece = TextPiece(batch_of(encode(text), np.array([0, len(text)])), first=0)
    wanted = searches([masks_of("AAAA"), masks_of("ACGAT")], 1, "both")

    def rows(device):
        found = asm.find(of_pieces([piece]), wanted, Choice("bit-parallel", device))
        parts = [(hits.end, hits.pattern, hits.distance) for _, hits in found]
        return [np.concatenate(column).tolist() for column in zip(*parts, strict=True)]

    truth = rows("cpu")
    assert len(truth[0]) > size // 3
    assert rows("cuda") == truth


def test_one_thread_has_one_engine(monkeypatch):
    """As a worker of a cluster, which searches one block at a time."""
    monkeypatch.setattr(asm, "SHARED_BLOCK", 100)
    wanted = searches([masks_of("ACGAT")], 1, "both")
    one, more = (
        asm.AsmSearch(wanted, Choice("bit-parallel", "cuda"), threads, best=False)
        for threads in (1, 2)
    )
    assert more.block_size == 100 < one.block_size


def test_more_hits_than_wanted():
    searcher = Searcher([masks_of("AAA")], 2, "bit-parallel")
    with pytest.raises(TooManyHitsError):
        searcher.search(encode("A" * 40), 0, 39)
    assert searcher.search(encode("A" * 40), 0, 40)[0].size == 40


def test_what_is_refused():
    pattern = np.ones(2000, dtype=np.uint8)
    with pytest.raises(ValueError, match="2000 letters, 1024 have room"):
        Searcher([pattern], 1, "wspasm-shared")
