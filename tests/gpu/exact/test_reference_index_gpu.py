"""The index of a reference text on the GPU, against brute force and the text itself."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from gpu.card.cuda_errors import CardMemoryError
from gpu.exact import pipeline, reference_index
from gpu.exact.pipeline import ChunkPiece, Pipeline
from tests.gpu import placement
from tests.gpu.placement import SIMULATED
from tests.trie.index.test_text_index import (
    KS,
    covered,
    index_of,
    joined,
    oracle_of,
    reads_of,
    reference,
)

pytestmark = placement.marks()

READS = 8 if SIMULATED else 400


@pytest.fixture(scope="module", autouse=True)
def lockstep_warps():
    with placement.small_blocks(32, reference_index) as patch:
        # the first chunks have more runs than there is room for
        patch.setattr(pipeline, "_WORDS_PER_RUN", 1 << 20)
        yield


def matched(index, strands, batches, *, runs):
    """The match bits of each batch, its windows' starts and its runs."""
    engine = Pipeline(index.k, strands, chunk=1 << 18, threads=3)
    engine.load_index(index)
    pieces = (ChunkPiece(*batch, runs=runs) for batch in batches)

    def taken(one):
        words = one.matches.size
        cuts = [0, words // 3, words // 2, words]
        rows = one.runs and [one.runs(first, stop) for first, stop in pairwise(cuts)]
        return one.matches.copy(), one.starts.copy(), rows

    found = list(engine.map(taken, pieces))
    engine.close()
    return found


@pytest.mark.parametrize(("k", "canonical"), [(k, c) for k in KS for c in (True, False)])
def test_windows_and_runs_are_those_of_the_text(k, canonical):
    rng = np.random.default_rng(k)
    records = reference(rng, k)
    index = index_of(records, k, canonical=canonical)
    oracle = oracle_of(records, k, canonical=canonical)
    empty = np.zeros(0, np.uint8), np.zeros(1, np.int64)
    batches = [joined(reads_of(rng, records, READS)), empty, joined(reads_of(rng, records, 3))]
    strands = "canonical" if canonical else "forward"
    for runs in (True, False):
        for (bases, offsets), (matches, starts, rows) in zip(
            batches, matched(index, strands, batches, runs=runs), strict=True
        ):
            start, match = (
                np.unpackbits(bits.view(np.uint8), bitorder="little", count=bases.size)
                for bits in (starts, matches)
            )
            np.testing.assert_array_equal(2 * start - match, oracle.match(bases, offsets))
            assert (rows is not None) == runs
            if runs:
                assert covered(index, bases, rows) == match.tolist()


def test_runs_of_words_become_those_of_reads():
    rng = np.random.default_rng(4)
    sizes, gaps = rng.choice((1, 5, 200), 150), rng.integers(0, 3, 150)
    stops = np.cumsum(sizes + gaps)
    places, steps = rng.integers(1 << 31, 1 << 32, 150), rng.choice([1, -1], 150)
    runs = np.column_stack((stops - sizes, stops, places, steps))
    cuts = np.array([
        (at, min(at // 32 * 32 + 32, stop), place + step * (at - begin), step)
        for begin, stop, place, step in runs.tolist()
        for at in (begin, *range(begin // 32 * 32 + 32, stop, 32))
    ])  # fmt: skip
    given = rng.permutation(cuts)
    words, first = np.unique(given[:, 0] // 32, return_index=True)
    rows, matches = rng.integers(0, 9, (words[-1] + 1, 4)), np.zeros(words[-1] + 1, np.uint32)
    rows[words], matches[words] = given[first], 1 << 31
    rows = np.concatenate((rows, np.delete(given, first, axis=0))).astype(np.uint32)
    found = np.empty((len(cuts), 4), np.int64)
    chains = reference_index.chained(rows, len(matches))
    count = reference_index.joined_runs(rows, chains, matches, 0, len(matches), found)
    np.testing.assert_array_equal(found[:count], runs)


def test_an_index_that_does_not_fit_is_refused_with_its_size():
    index = index_of([np.zeros(5_000, np.uint8)], 21)
    engine = Pipeline(21, memory_bytes=1 << 20, chunk=4096)
    card = engine.cards[0]
    card.budget.take("most of it", card.budget.left - 100)
    with pytest.raises(CardMemoryError, match=r"an index of 5,1\d\d bases"):
        card.load_index(index)
    engine.close()
