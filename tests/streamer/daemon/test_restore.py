"""Batches as records of a journal, and the state that a restart makes of them."""

from __future__ import annotations

from contextlib import closing
from types import SimpleNamespace

import msgpack
import numpy as np
import pytest

from streamer.daemon.batch_record import Accepted, Matched
from streamer.daemon.publish import Group, dictionary_record
from streamer.daemon.restore import fingerprint, identity, put_snapshot, restore
from streamer.daemon.stored_batch import StoredBatch
from streamer.dictionary.targets import Dictionary
from streamer.journal.record import JournalDamage, Key
from streamer.journal.store import Journal
from streamer.matching.matcher import StreamMatcher
from streamer.protocol.schema import LIVE_ONLY
from streamer.sequences.read_batch import ReadBatch
from tests.streamer.journal.kit import verify

K = 7
CASES = {
    "growing": {"mode": "grow", "strands": "canonical"},
    "seeded": {"mode": "frozen", "seed_bases": 300, "strands": "both"},
    "near": {"mode": "grow", "strands": "both", "distance": 1},
    "ltb": {"mode": "frozen", "strands": "forward", "distance": 1, "semantics": "ltb"},
}


def reads(rng, count):
    lengths = rng.integers(0, 90, count)
    codes = rng.choice(5, lengths.sum(), p=[0.245] * 4 + [0.02]).astype(np.uint8)
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    return ReadBatch([f"r{i}" for i in range(count)], offsets, codes)


def published(case, first=2):
    """The publications of some batches, in groups, and the matcher."""
    rng = np.random.default_rng(3)
    stored = Dictionary.from_batches(
        [reads(rng, 3)], K, "forward" if "distance" in case else "both"
    )
    if case["strands"] == "canonical":
        stored = Dictionary.from_batches([reads(rng, 3)], K, "canonical")
    matcher = StreamMatcher.of(stored, k=K, chunk=64, **case)
    heads = {}
    made = []
    for number in range(9):
        batch = reads(rng, number % 4)
        names = msgpack.packb(list(batch.names))
        key = Key(f"p{number % 2}", 1, number // 2 + 1, 77 + number, b"m%d" % number)
        accepted = Accepted(number, SimpleNamespace(), key, 1, batch, names, 0.0)
        near = stored if "distance" in case else None
        matched = Matched(
            first + number, accepted, matcher.match([batch])[0], matcher.dictionary, near
        )
        made += Group(heads, [matched]).publications(intervals=True)
    return made, matcher, stored


def dictionary(stored):
    """The first record of a journal."""
    return dictionary_record(1, 1, fingerprint(stored), stored, 0).record(5)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_record_holds_all_that_was_said(case, tmp_path):
    made, matcher, stored = published(case)
    matcher.close()
    said = set()
    with closing(Journal(tmp_path / "journal", identity(matcher.spec), "os")) as journal:
        journal.append([dictionary(stored)])
        journal.append([publication.record(9) for publication in made])
        for publication, record in zip(made, journal.records(1), strict=True):
            found = StoredBatch(record)
            matched = publication.matched
            assert record.key[:4] == (f"p{(record.at - 2) % 2}", 1, record.at // 2, 75 + record.at)
            assert found.about == publication.about
            assert found.meta["counts"] == publication.counts
            assert found.prev == publication.prev
            assert np.array_equal(found.reads.bases, matched.result.batch.bases)
            assert list(found.reads.names) == list(matched.result.batch.names)
            assert np.array_equal(found.new_kmers, matched.result.new_kmers)
            assert np.array_equal(found.learned, matched.result.learned)
            for topic in found.contents.keys() - LIVE_ONLY:
                content = found.contents[topic]
                said.add(topic)
                right = publication.content(topic)
                assert content.fields == right.fields
                assert [tuple(c) for c in content.described] == list(right.described)
                assert list(map(bytes, content.frames)) == list(map(bytes, right.frames))
    assert {"mismatch", "read"} <= said
    assert ("delta" in said) == (case["mode"] == "grow" or "seed_bases" in case)
    near = {case.get("semantics", "near")} if "distance" in case else set()
    assert {"near", "ltb"} & said == near


@pytest.mark.parametrize("snapshot_after", [(), (4,), (1, 6, 10)])
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_restart_makes_the_same_state(case, snapshot_after, tmp_path):
    made, matcher, stored = published(case)
    matcher.close()
    with closing(Journal(tmp_path / "journal", identity(matcher.spec), "os")) as journal:
        journal.append([dictionary(stored)])
        for publication in made:
            journal.append([publication.record(9)])
            if publication.matched.at in snapshot_after:
                put_snapshot(journal)
        found = restore(journal)
    results = [publication.matched.result for publication in made]
    last = results[-1]
    start = found.start(matcher.spec)
    assert (found.at, start.number, start.version) == (10, 9, last.version)
    assert start.position == last.base + last.batch.symbols
    for name in ("new_kmers", "learned"):
        right = np.concatenate([getattr(result, name) for result in results])
        assert np.array_equal(start.grown if name == "new_kmers" else start.learned, right)
    assert found.fingerprint == fingerprint(stored)
    heads = {}
    for publication in made:
        heads |= dict.fromkeys(publication.prev, publication.matched.at)
    assert found.heads == heads
    for name, total in found.counts.items():
        assert total == sum(publication.counts[name] for publication in made)


def test_a_snapshot_of_a_stream_that_brings_nothing_reads_no_batch(tmp_path):
    """Only the curve, which such a daemon does not have, lacks its batches."""
    made, matcher, stored = published({"mode": "frozen", "strands": "both"})
    matcher.close()
    with closing(Journal(tmp_path / "journal", identity(matcher.spec), "os")) as journal:
        journal.append([dictionary(stored)])
        journal.append([publication.record(9) for publication in made])
        right = restore(journal)
        assert not right.grown
        assert not right.learned
        found = restore(journal, learns=False)
        for name in ("at", "number", "position", "version", "fingerprint", "heads", "counts"):
            assert getattr(found, name) == getattr(right, name), name
        record = [*journal.records(1)][3]
        (data,) = (tmp_path / "journal").glob("records-*")
        with data.open("r+b") as file:
            place = file.read(1 << 16).index(bytes(record.frames[2]))
            file.seek(place)
            file.write(bytes([record.frames[2][0] ^ 1]))
        with pytest.raises(JournalDamage):
            put_snapshot(journal)
        put_snapshot(journal, learns=False)
        assert journal.snapshot().at == journal.head
        assert [damage.record for damage in verify(journal)] == [record.at]


def test_another_dictionary_has_another_fingerprint():
    rng = np.random.default_rng(1)
    one, other = (Dictionary.from_batches([reads(rng, 4)], K, "forward") for _ in range(2))
    assert fingerprint(one) != fingerprint(other)
    assert fingerprint(one) == fingerprint(one)
    assert fingerprint(Dictionary.empty(K, "forward")) != 0
