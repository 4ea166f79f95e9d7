"""The primer problem on a card or in the simulator: every method gives what brute force gives."""

from __future__ import annotations

import random
import sys
from pathlib import Path

import numpy as np
import placement
import pytest
from placement import SIMULATED

sys.path.insert(0, str(Path(__file__).parent.parent / "batch"))
import primer_oracle as oracle

pytestmark = [
    *placement.marks(),
    # words are added modulo 2**32, which numpy scalars of the simulator warn of
    pytest.mark.filterwarnings("ignore:overflow encountered in scalar"),
]


@pytest.fixture(scope="module", autouse=True)
def lockstep_warps():
    """Blocks of a size that the simulator can carry."""
    from gpu import primer
    from streamer.batch.primer import seeds

    with placement.small_blocks(32) as patch:
        if SIMULATED:
            patch.setattr(primer, "BLOCK_THREADS", 8)
            patch.setattr(primer, "OVERLAP_SHARE", 1)
            # seeds from the first columns on
            patch.setattr(seeds, "BEGINNING", 24)
            patch.setattr(seeds, "WORTH", 1e9)
        yield


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
    ]


CASES = [(method, case) for case in cases() for method in ("windows", "seeds", "hook-row")]
# the matrix L by a block a start takes its time in the simulator
GAPS = (["ACNTGA", "", "GCA"], ["AGCANGTTA", "AC"], 3)
SEEDS = [("alternative", case) for case in (cases()[0], GAPS, cases()[4])]


@pytest.mark.parametrize(("method", "case"), placement.share(CASES + SEEDS))
def test_every_method_gives_what_brute_force_gives(method, case):
    from streamer.batch.choice import Choice
    from streamer.batch.primer import STRANDS, reaches
    from streamer.batch.primer.problem import Alpha
    from trie.codes import encode

    alphas, betas, k = case
    strands = STRANDS[len(alphas[0]) % 2]
    alpha = Alpha.of([encode(record) for record in alphas])
    choice = Choice(method, "cuda")
    reach = reaches(alpha, [encode(beta) for beta in betas], k, choice, strands=strands)
    assert alpha.rows(reach).tolist() == oracle.primers(alphas, betas, k, strands)


def test_tiles_of_the_conventional_solution():
    """More tiles than one, ended by optimization 1 or by the end of alpha."""
    from gpu.primer import longest_prefixes
    from trie.codes import encode

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
    from gpu.primer import longest_prefixes
    from trie.codes import encode

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


@pytest.mark.parametrize("size", [64, 61])
def test_the_longest_pieces_at_the_end_of_a_text(size):
    """A look-up reads behind the text, never behind its words."""
    from gpu import primer
    from streamer.batch.primer.seeds import OnCores, Shape, runs, table_of

    rng = np.random.default_rng(size)
    text = rng.integers(0, 4, size, dtype=np.uint8)
    alpha = np.concatenate([text[-20:], text[:20]])
    firsts = np.array([0, 8, 20])
    table = table_of(alpha, firsts, Shape(1, 12, 0))
    on_card = primer.Text(primer.Alpha(alpha, np.full(40, 40)), text, 1)
    keys = on_card.seeded(firsts, 12, 12, table.begins.astype(np.uint32), table.entries)
    found = runs(keys, size)
    expected = OnCores(text, 1).find(alpha, firsts, table, 1)
    assert [column.tolist() for column in found] == [column.tolist() for column in expected]
    assert found[0].tolist() == [0, 1, 2]


def test_more_hits_than_the_buffer_holds(monkeypatch):
    from gpu import primer
    from streamer.batch.primer.seeds import runs

    monkeypatch.setattr(primer, "MOST_HITS", 5)
    monkeypatch.setattr(primer, "MOST_WINDOWS", 3)
    text = np.zeros(200, dtype=np.uint8)
    alpha = np.zeros(40, dtype=np.uint8)
    on_card = primer.Text(primer.Alpha(alpha, np.full(40, 40)), text, 2)
    on_card._room = 2
    firsts = np.arange(0, 12, 3)
    window, from_, until, slack = runs(on_card.hits(firsts, firsts + 10), text.size)
    assert window.tolist() == [0, 1, 2, 3]
    assert from_.tolist() == [0] * 4
    assert until.tolist() == [200] * 4
    assert slack.tolist() == [1] * 4
    from_, until = on_card.best(firsts, firsts + 10)
    assert from_.tolist() == [0] * 4
    assert until.tolist() == [64] * 4
