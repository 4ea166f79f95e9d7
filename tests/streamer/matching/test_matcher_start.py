"""A matcher that begins where another ended goes on as that one would have."""

from __future__ import annotations

from contextlib import closing

import numpy as np
import pytest

from streamer.dictionary.targets import Dictionary
from streamer.matching.matcher import StreamMatcher
from streamer.sequences.read_batch import ReadBatch
from tests.matching_results import start_of

K = 7
GROWING = {"mode": "grow"}
SEEDED = {"mode": "frozen", "seed_bases": 700}
NEAR = {"distance": 1, "semantics": "levenshtein"}
CASES = [
    *({"strands": strands, **changes} for strands in ("forward", "canonical", "both")
      for changes in (GROWING, SEEDED)),
    {"strands": "both", **GROWING, **NEAR},
    {"strands": "forward", **SEEDED, **NEAR},
    {"strands": "forward", **SEEDED, "distance": 1, "semantics": "ltb"},
    {"strands": "canonical", **GROWING, "kernel": "walk", "track_tree": True},
]  # fmt: skip


def reads(rng, count):
    lengths = rng.integers(0, 120, count)
    codes = rng.choice(5, lengths.sum(), p=[0.245] * 4 + [0.02]).astype(np.uint8)
    names = [f"r{i}" for i in range(count)]
    return ReadBatch(names, np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64), codes)


def facts(result):
    near = result.near
    arrays = [] if near is None else [near.read, near.end, near.version]
    if near is not None and near.semantics == "levenshtein":
        arrays += [near.start, near.distance, near.strand, near.code, near.target]
    elif near is not None:
        arrays += [near.matches, near.mismatches]
    return [
        result.number,
        result.base,
        result.version_before,
        result.version,
        result.seeded,
        *(a.tolist() for a in (result.events, result.runs, result.new_kmers, *arrays)),
        result.new_starts.tolist(),
    ]


@pytest.mark.parametrize("targets", [0, 3])
@pytest.mark.parametrize("case", CASES, ids=lambda case: "-".join(map(str, case.values())))
def test_goes_on_where_another_ended(case, targets):
    rng = np.random.default_rng(11)
    near = "distance" in case
    stored = "forward" if near else case["strands"]
    dictionary = Dictionary.from_batches([reads(rng, targets)], K, stored)
    batches = [reads(rng, 6) for _ in range(8)]

    def matcher(start=None):
        made = StreamMatcher.of(dictionary, k=K, **{"chunk": 64, **case}, start=start)
        return closing(made)

    with matcher() as whole:
        expected = [whole.match([batch])[0] for batch in batches]
        kmers = whole.kmers
    assert any(result.new_kmers.size for result in expected)
    for cut in (1, 3, 7):
        with matcher(start_of(expected[:cut])) as rest:
            found = [rest.match([batch])[0] for batch in batches[cut:]]
            assert rest.kmers == kmers
        for one, other in zip(found, expected[cut:], strict=True):
            assert facts(one) == facts(other)
