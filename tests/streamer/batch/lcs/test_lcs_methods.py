"""Every method gives the length that the definition gives, and a subsequence that both have."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest

from streamer.batch import lcs
from streamer.batch.choice import Choice
from streamer.batch.lcs import paper, solve
from streamer.batch.lcs import passes as waves
from streamer.batch.lcs.passes import Chain, Crew
from streamer.batch.lcs.solve import divide
from streamer.batch.lcs.symbols import Solution, pair_of
from streamer.batch.lcs.systolic import BLOCK, UNIT, WORDS
from streamer.errors import StreamerError, UsageError
from tests.reference import lcs as oracle
from trie.codes import InvalidBaseError
from trie.cpu.threads import run_all

CPU = [name for name, devices in lcs.METHODS.items() if "cpu" in devices]
CUDA = [name for name, devices in lcs.METHODS.items() if "cuda" in devices]


@pytest.fixture
def small_tables(monkeypatch):
    """Tables, passes and leaves so small that short sequences are divided, and cut for two
    threads."""
    monkeypatch.setattr(solve, "LEAF_CELLS", 2_000)
    monkeypatch.setattr(solve, "BOTH_FROM", 10_000)
    monkeypatch.setattr(solve, "SHORTEST_MARK", 2)
    monkeypatch.setattr(waves, "CUT_FROM", 40_000)
    monkeypatch.setattr(waves, "TILE_CELLS", 9_000)
    monkeypatch.setattr(waves, "LEAST_STRETCH", 20)
    monkeypatch.setattr(paper, "SHOWN_CELLS", 9_000)


def agree(a, b, methods, threads=1, want=None):
    want = oracle.length(a, b) if want is None else want
    for method in methods:
        case = (method, threads, a[:200], b[:200])
        options = {"method": method, "device": "cpu", "threads": threads}
        assert lcs.length(a, b, **options) == want, case
        found = lcs.match(a, b, **options)
        assert len(found) == want, case
        assert int(found.in_b.sum()) == want, case
        some = lcs.sequence(a, b, **options)
        assert len(some) == want, case
        in_a, in_b = (
            np.frombuffer(oracle.plain(x), dtype=np.uint8)[flags].tobytes()
            for x, flags in ((a, found.in_a), (b, found.in_b))
        )
        assert in_a == in_b == some, case
        assert not oracle.GAPS & set(in_a), case


def test_the_oracle_is_the_definition():
    for a, b in oracle.pairs(1, (0, 1, 2, 5, 9, 12), 200):
        a, b = oracle.plain(a), oracle.plain(b)
        assert oracle.length(a, b) == oracle.recursive(a, b), (a, b)


def test_the_papers_example():
    # Fig. 1
    assert lcs.length(b"BCAEDAC", b"EABEDCBAAC", text=True, device="cpu") == 5
    # the examples of section 2.1, where "abcdefghij" is a slip: it has no l
    assert lcs.sequence("abcdefghijkl", "cflorux", text=True, device="cpu") == b"cfl"
    assert lcs.sequence("abcde", "baexd", text=True, device="cpu") in (b"ad", b"ae", b"bd", b"be")


@pytest.mark.whole
@pytest.mark.parametrize("seed", range(2))
def test_short_pairs(seed):
    for a, b in oracle.pairs(seed, oracle.LENGTHS, 500):
        want = oracle.length(oracle.plain(a), oracle.plain(b))
        agree(a, b, CPU, want=want)


@pytest.mark.whole
@pytest.mark.parametrize("threads", [1, 2])
def test_pairs_that_are_divided(small_tables, threads):
    for a, b in oracle.pairs(10 + threads, (*oracle.LENGTHS, 500, 1_023, 1_025), 48):
        want = oracle.length(oracle.plain(a), oracle.plain(b))
        agree(a, b, CPU, threads, want)


@pytest.mark.whole
@pytest.mark.parametrize("threads", [1, 2])
def test_long_pairs(small_tables, threads):
    for a, b in oracle.pairs(20 + threads, oracle.LONG, 6):
        want = oracle.length(oracle.plain(a), oracle.plain(b))
        agree(a, b, [method for method in CPU if method != "dp"], threads, want)


def test_every_length_around_the_blocks_of_rows():
    rng = np.random.default_rng(30)
    for edge in [words * UNIT for words in WORDS] + [(WORDS[1] + WORDS[2]) * UNIT, BLOCK + UNIT]:
        for rows in (edge - 1, edge, edge + 1):
            a, b = oracle.random_bases(rng, rows), oracle.random_bases(rng, 40)
            agree(a, b, ("systolic",), want=oracle.length(a, b))


@pytest.mark.whole
@pytest.mark.parametrize("symbols", [1, 2, 3, 5, 9, 17, 40, 70, 130, 256])
def test_texts_of_any_alphabet(small_tables, symbols):
    rng = np.random.default_rng(symbols)
    for rows, columns in ((0, 3), (70, 50), (600, 700)):
        a, b = (rng.integers(0, symbols, n).astype(np.uint8).tobytes() for n in (rows, columns))
        want = oracle.length(a, b, gaps=set())
        for method in CPU:
            options = {"method": method, "device": "cpu", "text": True, "threads": 1}
            assert lcs.length(a, b, **options) == want, (method, symbols, rows)
            some = lcs.sequence(a, b, **options)
            assert len(some) == want, (method, symbols, rows)
            assert oracle.is_subsequence(some, a), (method, symbols, rows)
            assert oracle.is_subsequence(some, b), (method, symbols, rows)


def test_a_text_is_compared_as_it_is():
    assert lcs.length("acgtN", "ACGTN", text=True, device="cpu") == 1
    assert lcs.length("acgtN", "ACGTN", device="cpu") == 4
    assert lcs.sequence("Grüße", "Grüne", text=True, device="cpu") == "Grüe".encode()


def test_arrays_and_letters_are_the_same():
    a, b = b"ACGTTGCA", b"CGGTCA"
    want = lcs.sequence(a, b, device="cpu")
    assert want == lcs.sequence("acguugca", np.frombuffer(b, dtype=np.uint8), device="cpu")


@pytest.mark.parametrize("method", ["dp", "hirschberg", "bit-parallel", "systolic"])
def test_what_is_told_of_the_work_is_its_cells(small_tables, method):
    """A progress bar fills, and long work comes back to Python, where it can be interrupted."""
    rng = np.random.default_rng(35)
    # ends that are not in common
    a, b = (np.concatenate([[x], rng.integers(0, 4, 700), [x]]).astype(np.uint8) for x in (0, 1))
    choice = Choice(method, "cpu")
    told: list[int] = []
    solve.length_of(a, b, 4, choice, 1, told.append)
    assert sum(told) == a.size * b.size == solve.cells_of(a.size, b.size, choice, matching=False)
    assert method not in ("dp", "hirschberg") or len(told) > 10
    told.clear()
    solve.matching_of(a, b, 4, choice, 1, told.append)
    most = solve.cells_of(a.size, b.size, choice, matching=True)
    # tables that are solved at once are not told of
    assert 0.7 * most <= sum(told) <= 1.05 * most
    assert method not in ("dp", "hirschberg") or len(told) > 10


def test_many_threads_do_not_cut_the_work_to_dust():
    rng = np.random.default_rng(36)
    a, b = (rng.integers(0, 4, 30_000).astype(np.uint8) for _ in range(2))
    choice = Choice("systolic", "cpu")
    told: list[int] = []
    found = solve.length_of(a, b, 4, choice, 100, told.append)
    assert 2 <= len(told) < 20
    assert found == solve.length_of(a, b, 4, choice, 1)


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_tiles_run_once_and_behind_those_they_need(threads):
    done = []

    def tile(chain, lot, stretch):
        assert stretch == 0 or (chain, lot, stretch - 1) in done
        assert lot == 0 or (chain, lot - 1, stretch) in done
        done.append((chain, lot, stretch))

    sizes = [(3, 7), (1, 20), (4, 1)]
    tiles = [
        [[partial(tile, c, lot, stretch) for stretch in range(n)] for lot in range(lots)]
        for c, (lots, n) in enumerate(sizes)
    ]
    crew = Crew([Chain(lots) for lots in tiles])
    run_all([crew.work] * threads, threads)
    assert len(done) == len(set(done)) == sum(lots * n for lots, n in sizes)


def test_a_tile_that_fails_ends_the_others():
    done = []

    def fail():
        raise ZeroDivisionError("tile")

    tiles = [[*[partial(done.append, i) for i in range(3)], fail, partial(done.append, 9)]]
    crew = Crew([Chain(tiles), Chain([[fail]])])
    with pytest.raises(ZeroDivisionError, match="tile"):
        run_all([crew.work] * 2, 2)
    assert 9 not in done


@pytest.mark.parametrize("function", [lcs.length, lcs.sequence])
def test_an_interrupt_ends_the_differences(function, waits_of_interrupted):
    """What would take minutes ends, and the interrupt is raised."""
    rng = np.random.default_rng(37)
    a, b = (oracle.random_bases(rng, 400_000) for _ in range(2))
    with pytest.raises(KeyboardInterrupt):
        function(a, b, method="diff", device="cpu", threads=2)
    assert next(waits_of_interrupted) == 2


def test_blocks_and_identity():
    found = lcs.match(b"AAACCCGGGTTT", b"AAACCGGGTTTA", device="cpu")
    assert len(found) == 11
    rows = found.blocks().tolist()
    assert sum(length for _, _, length in rows) == 11
    assert rows[0][:2] == (0, 0)
    for (x, y, run), (x2, y2, _) in zip(rows, rows[1:], strict=False):
        assert x2 >= x + run
        assert y2 >= y + run
        assert (x2, y2) != (x + run, y + run)
    assert found.identity() == 11 / 12
    # AAACCCGGGTTT- over AAAC-CGGGTTTA: 11 pairs, two gaps
    assert found.column_identity() == 11 / 13
    swapped = lcs.match(b"AACAA", b"AAGAA", device="cpu")
    assert (swapped.identity(), swapped.column_identity()) == (0.8, 0.8)
    assert lcs.match(b"", b"", device="cpu").identity() == 1
    assert lcs.match(b"", b"A", device="cpu").column_identity() == 0
    assert lcs.match(b"", b"A", device="cpu").blocks().size == 0


def test_what_is_refused(monkeypatch):
    with pytest.raises(InvalidBaseError, match="position 3"):
        lcs.length(b"AC!T", b"ACGT", device="cpu")
    with pytest.raises(UsageError, match="unknown method 'fast'; there are adaptive, systolic"):
        lcs.length(b"A", b"A", method="fast")
    with pytest.raises(UsageError, match="'dp' runs on cpu, not on cuda"):
        lcs.length(b"A", b"A", method="dp", device="cuda")
    monkeypatch.setattr(paper, "MOST_CELLS", 100)
    with pytest.raises(StreamerError, match="keeps the whole table, 484 bytes: take 'hirschberg'"):
        lcs.sequence(b"ACGTACGTAC", b"GCATGCATGT", method="dp", device="cpu")
    a, b = b"ACGTACGTAC", b"GCATGCATGT"
    assert lcs.length(a, b, method="dp", device="cpu") == oracle.length(a, b)


def test_memory_is_linear(small_tables):
    """The pool of results, the largest thing that is kept beside the sequences themselves."""
    rng = np.random.default_rng(40)
    sizes = []
    for count in (4_000, 8_000):
        a, b = (rng.integers(0, 4, count).astype(np.uint8) for _ in range(2))
        pair = pair_of(a, b, 4)
        processor = solve.processor_of(pair, Choice("systolic", "cpu"), 1)
        solve.systolic_solve(Solution(pair), processor, threads=1)
        sizes.append(processor.pool.nbytes)
    assert sizes[0] < 20 * 4_000
    assert sizes[1] < 2.5 * sizes[0]


@pytest.mark.slow  # compiles anew
@pytest.mark.whole
def test_vectors_of_machines_without_avx_512(on_a_plain_processor):
    """Four lanes and no three-input logic: numba is told so when it is imported."""
    script = """
import numpy as np
from tests.reference import lcs as oracle
from streamer.batch import lcs
from streamer.batch.lcs import solve, systolic

assert systolic.LANES == 4
systolic.TABLE_STRETCH = 1_000
solve.LEAF_CELLS, solve.SHORTEST_MARK = 2_000, 2
for a, b in oracle.pairs(80, (33, 65, 1_100, 2_900, 4_097), 16):
    a, b = oracle.plain(a), oracle.plain(b)
    want = oracle.length(a, b)
    options = {"method": "systolic", "device": "cpu", "threads": 1}
    assert lcs.length(a, b, **options) == want, (a[:99], b[:99])
    some = lcs.sequence(a, b, **options)
    assert len(some) == want, (a[:99], b[:99])
    assert oracle.is_subsequence(some, a) and oracle.is_subsequence(some, b), (a[:99], b[:99])
rng = np.random.default_rng(81)
for symbols in (1, 2, 3, 5, 20):
    a, b = (rng.integers(0, symbols, n).astype(np.uint8).tobytes() for n in (2_100, 1_300))
    want = oracle.length(a, b, gaps=set())
    assert lcs.length(a, b, method="systolic", device="cpu", threads=1, text=True) == want, symbols
"""
    on_a_plain_processor(script)


class CountsMemory:
    """A processor that computes nothing: tables are cut in the middle, and the pool is counted."""

    words = 0

    def reserve(self, words):
        self.words = max(self.words, words)

    def sweep(self, passes):
        kept = (passes.marks > 0).sum(axis=1)
        assert (passes.at + kept * passes.stride <= self.words).all()
        assert (passes.stride * 32 >= passes.rows).all()

    def split(self, splits):
        return splits.rows // 2, splits.rows


@pytest.mark.parametrize("scale", [1, 10])
def test_memory_of_20_m_by_10_m(scale):
    """The results of all levels together: less than 8 bytes for each row, at the paper's largest
    size."""
    rows, columns = 20_000_000 // scale, 10_000_000 // scale
    pair = SimpleNamespace(a=SimpleNamespace(size=rows), b=SimpleNamespace(size=columns))
    solved = []
    counted = CountsMemory()
    divide(
        pair,
        counted,
        lambda row, row_end, column, column_end: solved.append(
            int(((row_end - row) * (column_end - column)).sum())
        ),
        is_leaf=lambda rows, columns: rows * columns <= 1 << 20,
    )
    assert 4 * counted.words < 8 * rows
    assert sum(solved) < 2_000 * rows


def test_the_subsequence_does_not_depend_on_threads():
    rng = np.random.default_rng(5)
    a = rng.integers(0, 4, 20_000).astype(np.uint8)
    b = a[rng.random(a.size) > 0.015].copy()
    changed = rng.random(b.size) < 0.015
    b[changed] = (b[changed] + rng.integers(1, 4, changed.sum(), np.uint8)) % 4
    letters = [np.frombuffer(b"ACGT", np.uint8)[codes].tobytes() for codes in (a, b)]
    found = [lcs.match(*letters, device="cpu", threads=n).blocks().tolist() for n in (1, 2, 16)]
    assert found[0] == found[1] == found[2]
