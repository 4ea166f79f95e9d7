"""A growing dictionary stops at its limit, in the same place however the stream is matched."""

from __future__ import annotations

import random
from contextlib import closing

import numpy as np
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from streamer.dictionary.targets import Dictionary
from streamer.matching.matcher import StreamMatcher
from tests.matching_results import batch_of, dictionary_of, rows_of, start_of
from tests.reference import exact as oracle
from tests.reference import levenshtein as near_oracle
from trie.codes import decode_kmers
from trie.trees.hybrid_tree import snapshot

LETTERS = "ACGTACGTACGTN"


def in_groups(matcher, batches, cuts):
    """The results of batches that come in groups, cut before these."""
    bounds = [0, *sorted(cuts), len(batches)]
    groups = [batches[a:b] for a, b in zip(bounds, bounds[1:], strict=False)]
    return [result for group in groups if group for result in matcher.match(group)]


@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_equals_the_definition(data):
    k = data.draw(st.sampled_from([1, 2, 3, 4, 6, 11, 16, 31]), "k")
    strands = data.draw(st.sampled_from(["forward", "canonical", "both"]), "strands")
    mode = data.draw(st.sampled_from(["grow", "grow", "frozen"]), "mode")
    rng = random.Random(data.draw(st.integers(0, 1 << 32), "random"))
    texts = ["".join(rng.choices(LETTERS, k=rng.randrange(50))) for _ in range(rng.randrange(9))]
    pool = "".join(texts)
    records = [("t", pool[5:30])] if data.draw(st.booleans(), "records") else []
    sequences = [(f"r{i}", text) for i, text in enumerate(texts + texts[:2])]
    cuts = [cut for cut in range(len(sequences)) if rng.random() < 0.7]
    bounds = [0, *cuts, len(sequences)]
    reads = [sequences[a:b] for a, b in zip(bounds, bounds[1:], strict=False) if a < b]
    seed = data.draw(st.integers(0, len(pool) + 10), "seed") if data.draw(st.booleans()) else 0
    asked = {"strands": strands, "mode": mode, "records": records, "seed": seed}
    whole = oracle.match_limited(reads, k, 0, **asked)
    assert whole[0] == oracle.match(sequences, k, **asked)
    share = data.draw(st.sampled_from([0.5, 0.0, 0.2, 0.8, 1.0]), "limit")
    limit = 1 + int(share * len(whole[2]))
    rows, brought, known = oracle.match_limited(reads, k, limit, **asked)
    event(f"stopped: {len(known) < len(whole[2])}")
    dictionary = dictionary_of(records, k, strands)
    indices = st.sets(st.integers(0, len(reads)), max_size=3)
    results = []
    # every restart may have other chunks, threads and kernels
    stops = [*sorted(data.draw(indices, "restarts")), len(reads)]
    done = 0
    for stop in stops:
        matcher = StreamMatcher.of(
            dictionary,
            mode=mode,
            seed_bases=seed,
            max_kmers=limit,
            kernel=data.draw(st.sampled_from(["auto", "walk"]), "kernel"),
            chunk=data.draw(st.integers(k, k + 70), "chunk"),
            threads=data.draw(st.sampled_from([1, 2]), "threads"),
            start=start_of(results),
        )
        with closing(matcher):
            batches = [batch_of(part) for part in reads[done:stop]]
            done = stop
            if data.draw(st.booleans(), "depths"):
                results += [matcher.match([batch], words=True)[0] for batch in batches]
            else:
                results += in_groups(matcher, batches, data.draw(indices, "groups"))
            kmers = matcher.kmers
            grows = mode == "grow" or sum(len(text) for r in reads[:done] for _, text in r) < seed
            assert matcher.limited == (grows and kmers >= limit)
            latest = matcher.latest_snapshot() if matcher.spec.changes else None
    assert rows_of(results, dictionary.targets) == rows
    assert kmers == len(known)
    assert [result.number for result in results] == list(range(len(reads)))
    for result, new in zip(results, brought, strict=True):
        found = decode_kmers(result.new_kmers, k)
        assert sorted(found) == sorted(oracle.stored(kmer, strands) for kmer in new)
        assert result.version > result.version_before or not new
    if latest is not None:
        held = {*known}
        if strands == "both":
            held |= {oracle.reverse_complement(kmer) for kmer in held}
        numbers = [int("".join(str("ACGT".index(c)) for c in kmer), 4) for kmer in held]
        expected = snapshot(np.array(numbers, dtype=np.uint64), k)
        np.testing.assert_array_equal(latest.tree.inmaps, expected.inmaps)


def random_reads(rng, count, length=60):
    return [(f"r{i}", "".join(rng.choice(list("ACGT"), length))) for i in range(count)]


@pytest.mark.parametrize("depths", [False, True])
@pytest.mark.parametrize("kernel", ["auto", "walk"])
def test_depths_of_a_limited_dictionary_are_those_of_all_its_kmers(kernel, depths):
    """Not those of a snapshot that lags behind; words have its version, whatever the chunks."""
    rng = np.random.default_rng(5)
    reads = [random_reads(rng, 4) for _ in range(5)]
    k, limit = 5, 300
    _, brought, known = oracle.match_limited(reads, k, limit, mode="grow")
    first = next(i for i, new in enumerate(brought) if not new)
    prefixes = oracle.prefixes_of(known, "canonical")
    for chunk in (k, 33, 1000):
        made = StreamMatcher.of(
            Dictionary.empty(k, "canonical"), mode="grow", max_kmers=limit, chunk=chunk,
            kernel=kernel, track_tree=True,
        )  # fmt: skip
        with closing(made) as matcher:
            for part in reads[:first]:
                assert not matcher.limited
                matcher.match([batch_of(part)], words=depths)
            for part in reads[first:]:
                assert matcher.limited
                result = matcher.match([batch_of(part)], words=True)[0]
                for text, start in zip((t for _, t in part), result.batch.offsets, strict=False):
                    for at, kmer in oracle.windows_of(text, k):
                        depth = result.depths.depths[start + at]
                        assert depth == oracle.depth_of(kmer, prefixes, "canonical")
                assert {words.version for words in result.words()} == {matcher.version}


@pytest.mark.parametrize("strands", ["forward", "both"])
@pytest.mark.parametrize("mode", ["grow", "frozen"])
@pytest.mark.parametrize("chunk", [8, 50, 10_000])
def test_a_distance_to_what_was_known_at_the_limit(strands, mode, chunk):
    """With seeds alone or growth: k-mers learned no more are not compared with."""
    rng = np.random.default_rng(6)
    reads = [random_reads(rng, 3, 30) for _ in range(5)]
    k, distance, limit, seed = 8, 1, 100, 0 if mode == "grow" else 10_000
    _, brought, _ = oracle.match_limited(
        reads, k, limit, strands=strands, mode=mode, seed=seed
    )  # fmt: skip
    learned = {}
    for index, kmer in enumerate(kmer for new in brought for kmer in new):
        learned.setdefault(kmer, [index])
    if mode == "frozen":
        # seeds count as they stand, both orientations of one too
        full = [read for part, new in zip(reads, brought, strict=True) if new for read in part]
        learned = {kmer: [] for _, text in full for _, kmer in oracle.windows_of(text, k)}
    asked = {"mode": mode, "seed_bases": seed, "strands": strands, "distance": distance, "k": k}
    results = []
    for stop in (2, 4, 5):
        made = StreamMatcher.of(
            Dictionary.empty(k, "forward"), max_kmers=limit, chunk=chunk, start=start_of(results),
            **asked,
        )  # fmt: skip
        with closing(made) as matcher:
            results += [matcher.match([batch_of(part)])[0] for part in reads[len(results) : stop]]
    assert [result.learned.size > 0 for result in results] == [bool(new) for new in brought]
    assert not brought[-1]
    before = sum(not new for new in brought)
    for part, result in zip(reads[-before:], results[-before:], strict=True):
        want = [
            (read, *found[:3])
            for read, (_, text) in enumerate(part)
            for found in near_oracle.nearest(learned, text, distance, both=strands == "both")
        ]
        near = result.near
        columns = (near.read, near.start, near.end, near.distance)
        assert list(zip(*(column.tolist() for column in columns), strict=True)) == want
        assert want


@pytest.mark.parametrize("strands", ["forward", "both"])
@pytest.mark.parametrize("mode", ["grow", "frozen"])
def test_ltb_against_what_was_known_at_the_limit(strands, mode):
    """As against a dictionary of these k-mers that never grew."""
    rng = np.random.default_rng(8)
    reads = [random_reads(rng, 3, 30) for _ in range(4)]
    k, limit, seed = 6, 100, 0 if mode == "grow" else 10_000
    _, brought, _ = oracle.match_limited(reads, k, limit, strands=strands, mode=mode, seed=seed)
    last = sum(bool(new) for new in brought)
    near = {"strands": strands, "distance": 1, "semantics": "ltb", "k": k}
    known = [(f"t{i}", kmer) for i, kmer in enumerate({kmer for new in brought for kmer in new})]
    grown = StreamMatcher.of(
        Dictionary.empty(k, "forward"), mode=mode, seed_bases=seed, max_kmers=limit, **near
    )
    fixed = StreamMatcher.of(dictionary_of(known, k, "forward"), mode="frozen", **near)
    with closing(grown), closing(fixed):
        for part in reads[:last]:
            grown.match([batch_of(part)])
        assert last < len(reads)
        for part in reads[last:]:
            found, want = (
                grown.match([batch_of(part)])[0].near,
                fixed.match([batch_of(part)])[0].near,
            )
            for column in ("read", "end", "matches", "mismatches"):
                assert getattr(found, column).tolist() == getattr(want, column).tolist()
            assert len(found.read)


def test_sources_over_the_limit_are_matched_and_nothing_is_added():
    rng = np.random.default_rng(7)
    records, reads = random_reads(rng, 2), random_reads(rng, 3)
    known = dictionary_of(records, 9, "canonical")
    with closing(StreamMatcher.of(known, mode="grow", max_kmers=10)) as matcher:
        assert matcher.limited
        result = matcher.match([batch_of(records + reads)])[0]
        assert matcher.kmers == known.codes.size
        assert result.version == result.version_before == 1
    with closing(StreamMatcher.of(known, mode="frozen", max_kmers=10)) as matcher:
        assert not matcher.limited
