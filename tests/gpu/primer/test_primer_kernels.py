"""Every method of the primer problem on CUDA against brute force."""

from __future__ import annotations

import random

import numpy as np
import pytest

from gpu import primer as gpu_primer
from gpu.primer import MOST_COLUMNS, GpuAlpha, GpuText, seeds, window_scan
from gpu.primer.paper import longest_prefixes
from streamer.batch import primer
from streamer.batch.choice import Choice
from streamer.batch.primer import on_gpu, reaches
from streamer.batch.primer.problem import Alpha
from streamer.batch.primer.seeds import CutCosts
from tests.gpu import placement
from tests.gpu.placement import SIMULATED
from tests.reference import primer as oracle
from trie.codes import encode
from trie.strands import PRIMER_STRANDS

pytestmark = [
    *placement.marks(),
    # words are added modulo 2**32, which numpy scalars of the simulator warn of
    pytest.mark.filterwarnings("ignore:overflow encountered in scalar"),
]


@pytest.fixture(scope="module", autouse=True)
def lockstep_warps():
    """Blocks of a size that the simulator can carry, and windows from the first columns on."""
    with placement.small_blocks(32, window_scan, seeds) as patch:
        patch.setattr(on_gpu, "FIRST", (64, 64))
        if SIMULATED:
            patch.setattr(gpu_primer, "FEW", 20)
            patch.setattr(gpu_primer, "LAUNCHES", 3)
        yield patch


@pytest.fixture
def pieces_pay(monkeypatch):
    """Windows are found through pieces wherever they can be."""
    monkeypatch.setattr(on_gpu, "COSTS", CutCosts(scanned=1e9, candidate=1, found=1, shared=3))


def letters(rng, length, alphabet="ACGT"):
    return "".join(rng.choice(alphabet) for _ in range(length))


def cases():
    """Alphas, betas, k: gaps, repeats, several records, alpha inside beta, k near the length."""
    rng = random.Random(7)
    inside = letters(rng, 30)
    return [
        (["ACTG"], ["AGCAAG"], 2),
        ([letters(rng, 14)], [letters(rng, 70)], 1),
        ([letters(rng, 13, "ACGTN"), "", letters(rng, 5)], [letters(rng, 50, "ACGTN"), "AC"], 3),
        (["ACACACACACACAC"], ["CA" * 12 + "T" * 9], 4),
        ([inside[:20]], [letters(rng, 20) + inside[2:18] + letters(rng, 9)], 2),
        ([letters(rng, 10)], ["ACGT"], 20),
        ([letters(rng, 41)], [letters(rng, 40), letters(rng, 30)], 18),
        ([inside[:24] + "N"], [letters(rng, 70), letters(rng, 90) + inside[3:14] + "CC"], 3),
    ]


CASES = [
    pytest.param(method, case, marks=[pytest.mark.slow] * (method == "seeds" and case[2] == 18))
    for case in cases()
    for method in ("windows", "seeds", "hook-row")
]
# the matrix L by a block a start takes its time in the simulator
GAPS = (["ACNTGA", "", "GCA"], ["AGCANGTTA", "AC"], 3)
SEEDS = [("alternative", case) for case in (cases()[0], GAPS, cases()[4])]


@pytest.mark.parametrize(("method", "case"), CASES + SEEDS)
@pytest.mark.usefixtures("pieces_pay")
def test_every_method_gives_what_brute_force_gives(method, case):
    alphas, betas, k = case
    strands = PRIMER_STRANDS[len(betas) % 2]
    alpha = Alpha.of([encode(record) for record in alphas])
    choice = Choice(method, "cuda")
    reach = reaches(alpha, [encode(beta) for beta in betas], k, choice, strands=strands)
    assert alpha.rows(reach).tolist() == oracle.primers(alphas, betas, k, strands)


def test_tiles_of_the_conventional_solution():
    """More tiles than one, ended by optimization 1 or by the end of alpha."""
    rng = random.Random(4)
    alpha, beta = letters(rng, 13, "ACGTN"), letters(rng, 9, "ACGTN")
    for k, starts in ((2, [0]), (4, [1]), (20, [9])):
        lengths, counts = longest_prefixes(
            "conventional", encode(alpha), encode(beta), k, np.array(starts), threads=4
        )
        expected = [oracle.longest(alpha[start:], [beta], k) for start in starts]
        assert lengths.tolist() == expected, (alpha, beta, k)
        assert counts[0] % len(beta) == 0
        assert counts[0] > 0


@pytest.mark.parametrize("factor", [0, 1, 3])
def test_the_prefetch_misses_less_with_a_larger_factor(factor):
    rng = random.Random(3)
    alpha, beta, k = letters(rng, 24), letters(rng, 40), 5
    starts = np.arange(0, 20, 6)
    lengths, counts = longest_prefixes(
        "alternative", encode(alpha), encode(beta), k, starts, threads=8, factor=factor,
        counted=True,
    )  # fmt: skip
    expected = [oracle.longest(alpha[start:], [beta], k) for start in starts]
    assert lengths.tolist() == expected
    compared, alpha_read, alpha_missed, beta_read, beta_missed = counts.tolist()
    assert compared == alpha_read == beta_read > 0
    if factor == 0:
        assert alpha_missed == alpha_read
        assert beta_missed == beta_read
    else:
        assert (alpha_missed == 0) == (factor == 3)
        assert beta_missed < beta_read / 4


def edited(rng, piece):
    """The piece with at most one error."""
    at, kind = rng.integers(piece.size), rng.integers(4)
    if kind == 0:
        return piece
    if kind == 1:
        changed = piece.copy()
        changed[at] = rng.integers(4)
        return changed
    return np.delete(piece, at) if kind == 2 else np.insert(piece, at, rng.integers(4))


@pytest.mark.parametrize("symbols", [4, 9])
def test_a_table_has_every_piece_with_at_most_one_error(symbols):
    rng = np.random.default_rng(symbols)
    alpha = rng.integers(0, 4, 70, dtype=np.uint8)
    alpha[30:36] = 2  # runs
    alpha[[3, 50, 52]] = 4
    firsts = np.array([0, 9, 28, 44])
    blocks = np.stack([firsts, firsts, firsts + 2 * symbols])
    text = GpuText(GpuAlpha(alpha, np.full(70, 70)), 3, both=False)
    table = text.table(np.append(blocks, [[5], [5], [7]], axis=1), 2, symbols, 1)
    begins, entries = table.begins.copy_to_host(), table.entries.copy_to_host()
    weights = 1 << np.arange(symbols - 1, -1, -1)

    def found(held):
        code = int(((held & 1) * weights).sum() << symbols | ((held >> 1) * weights).sum())
        return entries[begins[code] : begins[code + 1]].tolist()

    for _ in range(120):
        window, piece = rng.integers(4), rng.integers(2)
        first = firsts[window] + piece * symbols
        exact = alpha[first : first + symbols]
        if (exact == 4).sum() > 1:
            assert window * 16 + piece not in entries
            continue
        if (exact == 4).any():
            at = int(np.flatnonzero(exact == 4)[0])
            held = exact.copy()
            held[at] = rng.integers(4)
            held = np.delete(held, at) if rng.integers(2) else held
        else:
            held = edited(rng, exact)
        held = np.append(held, rng.integers(0, 4, 3, dtype=np.uint8))
        # what is put in before the piece, or in its first run, is an error of the piece before
        either = found(held[:symbols]) + found(held[1 : symbols + 1])
        assert window * 16 + piece in either, (window, piece, exact, held)


@pytest.mark.parametrize("column", [45, 50, 60])
def test_a_window_that_ends_in_the_columns_asked_for_is_found(column):
    """Its only piece with few errors begins before them."""
    rng = np.random.default_rng(column)
    alpha = rng.integers(0, 4, 60, dtype=np.uint8)
    beta = rng.integers(0, 4, 200, dtype=np.uint8)
    beta[column : column + 20] = alpha[7:27]
    beta[column + np.array([12, 15, 18])] ^= 1
    text = GpuText(GpuAlpha(alpha, np.full(60, 60)), 4, both=False)
    text.load([beta])
    table = text.table(np.array([[7], [7], [27]]), 2, 10, 1)
    for first, stop in ((64, 128), (64, 192), (0, 256)):
        hits = text.seeded(table, first, stop)
        keys = hits.keys.copy_to_host()[: hits.stored].astype(np.int64)
        begins = keys >> 12
        ends = column + 19
        found = (begins <= ends) & (ends < begins + hits.span)
        assert found.any(), (first, stop, begins)


def test_columns_that_keys_cannot_name_are_refused():
    """The number of a column would run over into that of the window."""
    text = GpuText(GpuAlpha(np.zeros(20, np.uint8), np.full(20, 20)), 3, both=False)
    table = text.table(np.array([[0], [0], [18]]), 2, 9, 1)
    with pytest.raises(ValueError, match="268435456 at most"):
        text.seeded(table, MOST_COLUMNS - 64, MOST_COLUMNS + 64)


def agrees(alpha, beta, method, **options):
    """At k = 3 the reaches are those of the CPU's hook row."""
    expected, found = (
        reaches(alpha, iter(beta), 3, choice, **options)
        for choice in (Choice("hook-row", "cpu"), Choice(method, "cuda"))
    )
    np.testing.assert_array_equal(found, expected)


@pytest.mark.usefixtures("pieces_pay")
@pytest.mark.parametrize("most", [0, 200])
def test_columns_that_keys_cannot_name_are_scanned(monkeypatch, most):
    """With the second bound pieces are looked for in the first columns of the text."""
    monkeypatch.setattr(gpu_primer, "MOST_COLUMNS", most)
    monkeypatch.setattr(on_gpu, "GROWTH", 2)
    rng = random.Random(most)
    beta = letters(rng, 260)
    record = beta[200:220] + letters(rng, 20)
    alpha = Alpha.of([encode(record)])
    reach = reaches(alpha, [encode(beta)], 3, Choice("seeds", "cuda"))
    assert alpha.rows(reach).tolist() == oracle.primers([record], [beta], 3)


@pytest.mark.usefixtures("pieces_pay")
@pytest.mark.parametrize("method", ["windows", "seeds"])
def test_more_hits_than_are_kept(monkeypatch, method):
    """Those that are kept raise the reaches, and halves are looked at anew."""
    monkeypatch.setattr(gpu_primer, "ROOM", 2)
    monkeypatch.setattr(gpu_primer, "MOST_HITS", 4)
    monkeypatch.setattr(gpu_primer, "MOST_WINDOWS", 3)
    monkeypatch.setattr(on_gpu, "GROWTH", 3)
    rng = np.random.default_rng(6)
    alpha = Alpha.of(
        [np.concatenate([rng.integers(0, 4, 12, dtype=np.uint8), np.zeros(9, np.uint8)])]
    )
    beta = [np.concatenate([rng.integers(0, 2, 180, dtype=np.uint8), np.zeros(60, np.uint8)])]
    agrees(alpha, beta, method)


@pytest.mark.usefixtures("pieces_pay")
def test_more_windows_than_a_table_has(monkeypatch):
    monkeypatch.setattr(on_gpu, "MOST_WINDOWS", 2)
    rng = np.random.default_rng(8)
    alpha = Alpha.of([rng.integers(0, 4, 30, dtype=np.uint8)])
    beta = [rng.integers(0, 4, 200, dtype=np.uint8)]
    agrees(alpha, beta, "seeds")


@pytest.mark.parametrize("method", ["windows", "seeds"])
@pytest.mark.usefixtures("pieces_pay")
def test_several_engines(monkeypatch, method):
    """They divide alpha for the first chunk of beta; later chunks are taken in turn."""
    monkeypatch.setattr(primer, "LEAST_STARTS", 4)
    monkeypatch.setattr(on_gpu, "FIRST", (64, 64))
    rng = np.random.default_rng(9)
    alpha = Alpha.of([rng.integers(0, 4, size, dtype=np.uint8) for size in (13, 2, 9)])
    beta = [rng.integers(0, 4, size, dtype=np.uint8) for size in (150, 30, 1, 220, 60)]
    expected = reaches(alpha, beta, 3, Choice("hook-row", "cpu"), strands="both")
    for chunk, cards in ((120, (0, 0)), (200, (0, 0, 0)), (240, (0, 0))):
        monkeypatch.setattr(primer, "CHUNK_SYMBOLS", chunk)
        choice = Choice(method, "cuda", cards=cards)
        found = reaches(alpha, iter(beta), 3, choice, strands="both")
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("most_words", [1, 2])
def test_matches_of_more_rows_than_a_thread_has(monkeypatch, most_words):
    monkeypatch.setattr(gpu_primer, "MOST_WORDS", most_words)
    rng = np.random.default_rng(most_words)
    a = rng.integers(0, 4, 35 * most_words + 10, dtype=np.uint8)
    changed = np.delete(a, 35 * most_words)
    changed[::31] ^= 1
    alpha = Alpha.of([a[:-2], a])
    beta = [rng.integers(0, 4, 90, dtype=np.uint8), np.append(changed, a[:20])]
    agrees(alpha, beta, "windows", strands="both")
