"""The benchmark of exact matching: its streams, its peers' answers, its rows."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks import exact, frozen_reads, peers
from benchmarks.inputs import half_hit
from benchmarks.plain_hash import PlainHashSet
from trie.index.kmer_index import KmerIndex
from trie.windows import window_codes

pytestmark = pytest.mark.whole


def test_rows_of_a_small_run() -> None:
    rows = list(exact.frozen(kmers=3000, ks=(15,), threads=(1, 2), repeats=1))
    methods = {(row["method"], row["threads"]) for row in rows}
    assert {("index", 2), ("snapshot walk", 1), ("plain hash set", 1), ("sshash", 1)} <= methods
    assert all(row["windows/s"] is not None or row["note"] for row in rows)
    grown = exact.grow(total=3000, threads=(1,), repeats=1)
    assert {row["table from"] for row in grown} == {"empty", "final size"}


def test_both_indexes_find_the_same_in_reads() -> None:
    rows = list(frozen_reads.rows(3000, ks=(21,), total=20_000, threads=(1,), repeats=1))
    assert [row["method"] for row in rows] == 2 * ["text index", "plain table"]
    assert all(row["equal"] and row["windows/s"] > 0 for row in rows)


def test_the_plain_hash_set_answers_as_the_index() -> None:
    text = np.random.default_rng(1).integers(0, 4, 20_000, dtype=np.uint8)
    offsets = np.array([0, text.size])
    stream = half_hit(text[:10_000], 10_000, 2)
    for expected in (0, 20_000):
        plain = PlainHashSet(15, expected=expected)
        index = KmerIndex(15)
        events = np.zeros(text.size, dtype=np.uint8)
        ours = np.zeros(text.size, dtype=np.uint8)
        plain.grow(text, offsets, events)
        index.grow(text, offsets, canonical=True, events=ours)
        np.testing.assert_array_equal(events, ours)
        found = np.zeros(stream.bases.size, dtype=np.uint8)
        plain.match(stream.bases, stream.offsets, found)
        np.testing.assert_array_equal(
            found, index.match(stream.bases, stream.offsets, canonical=True)
        )


def test_pieces_hold_every_kmer_once() -> None:
    text = np.tile(np.random.default_rng(2).integers(0, 4, 500, dtype=np.uint8), 2)
    text[700] ^= 1
    pieces = exact.unique_pieces(text, 11)
    kmers = [piece[i : i + 11] for piece in pieces for i in range(len(piece) - 10)]
    codes, _ = window_codes(text, np.array([0, text.size]), 11, canonical=True)
    assert len(kmers) == np.unique(codes).size


def test_sshash_answers_as_the_index() -> None:
    pytest.importorskip("sshash")
    text = np.random.default_rng(3).integers(0, 4, 20_000, dtype=np.uint8)
    index = KmerIndex(21)
    index.grow(text, np.array([0, text.size]), canonical=True)
    query = peers.sshash(exact.unique_pieces(text, 21), 21)
    assert query is not None
    for stream in (half_hit(text, 20_000, 4), exact.sequenced(text, 20_000, 150, 5)):
        events = index.match(stream.bases, stream.offsets, canonical=True)
        for number, read in enumerate(exact.letters_of(stream)):
            first = int(stream.offsets[number])
            hits = [hit is not None for hit in query.query_sequence(read)]
            assert hits == (events[first : first + len(hits)] == 1).tolist()
