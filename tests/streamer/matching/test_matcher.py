"""The matcher against the definition: chunks, batches, threads, kernels and event words."""

from __future__ import annotations

from contextlib import closing

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamer.dictionary import index, targets
from streamer.dictionary.targets import Dictionary
from streamer.errors import StreamerError
from streamer.matching import matcher
from streamer.matching.matcher import StreamMatcher
from streamer.matching.target_counts import TargetCounts, numbers_of
from streamer.sequences.context import LabelColumn
from streamer.sequences.read_batch import ReadBatch
from tests.matching_results import dictionary_of, rows_of, start_of
from tests.reference import exact as oracle
from tests.reference.exact import decode_kmer, unpack_events
from tests.reference.targets import targets_report
from trie.index import repeats
from trie.trees.hybrid_tree import snapshot
from trie.windows import NO_SET

DNA = st.text(st.sampled_from("ACGTACGTACGTN"), max_size=40)


def batches_of(reads, cuts):
    """The reads as batches, cut before the reads of those indices."""
    bounds = [0, *sorted(set(cuts)), len(reads)]
    return [
        ReadBatch.from_sequences([n for n, _ in part], [s for _, s in part])
        for part in (reads[a:b] for a, b in zip(bounds, bounds[1:], strict=False))
        if part
    ]


@settings(max_examples=120, deadline=None)
@given(data=st.data())
def test_equals_the_definition(data):
    k = data.draw(st.sampled_from([1, 2, 3, 4, 6, 11, 13, 16, 21, 31]), "k")
    strands = data.draw(st.sampled_from(["forward", "canonical", "both"]), "strands")
    mode = data.draw(st.sampled_from(["frozen", "grow"]), "mode")
    texts = data.draw(st.lists(DNA, max_size=6), "reads")
    pool = "".join(texts)
    records = [
        (f"t{i}", text)
        for i, text in enumerate(
            data.draw(st.lists(st.sampled_from([pool[5:60], pool[:20], "ACGT" * 9]), max_size=3))
        )
    ]
    reads = [(f"r{i}", text) for i, text in enumerate(texts + texts[:2])]
    seed = data.draw(st.integers(0, len(pool) + 10), "seed") if data.draw(st.booleans()) else 0
    cuts = data.draw(st.lists(st.integers(0, len(reads)), max_size=3), "cuts")
    want = oracle.match(reads, k, strands=strands, mode=mode, records=records, seed=seed)
    dictionary = dictionary_of(records, k, strands)
    with closing(
        StreamMatcher.of(
            dictionary,
            mode=mode,
            seed_bases=seed,
            kernel=data.draw(st.sampled_from(["auto", "walk"]), "kernel"),
            chunk=data.draw(st.integers(k, k + 70), "chunk"),
            threads=data.draw(st.sampled_from([1, 2]), "threads"),
        )
    ) as matcher:
        depths = data.draw(st.booleans(), "depths")
        results = [matcher.match([b], words=depths)[0] for b in batches_of(reads, cuts)]
        assert rows_of(results, dictionary.targets) == want
        # every new k-mer once, in stream order, where the definition has its first window
        new = [
            (result.base + int(start), decode_kmer(int(code), k))
            for result in results
            for code, start in zip(result.new_kmers, result.new_starts, strict=True)
        ]
        assert new == sorted(new)
        kmers = {kmer for _, kmer in new}
        assert len(kmers) == len(new)
        known = set(oracle.dictionary_of(records, k, strands))
        assert not kmers & known
        assert matcher.kmers == len(known | kmers)
        mismatches = sum(row[2] == "mismatch" for row in want)
        seeded = sum(result.seeded for result in results)
        assert len(new) - seeded == (mismatches if mode == "grow" else 0)
        if depths:
            check_words(results, k)
        # the Hybrid Tree Bitmap has followed: its snapshot is that of the whole dictionary
        everything = known | kmers
        if strands == "both":
            everything |= {oracle.reverse_complement(kmer) for kmer in everything}
        codes = np.array(
            [int("".join(str("ACGT".index(c)) for c in kmer), 4) for kmer in everything], np.uint64
        )
        expected, latest = snapshot(codes, k), matcher.latest_snapshot()
        assert latest.version == matcher.version
        for field in ("inmaps", "exmaps", "prefix_sums", "level_offsets"):
            np.testing.assert_array_equal(getattr(latest.tree, field), getattr(expected, field))


def check_words(results, k):
    """Event words carry the same events; their index counts from the chunk's base."""
    for result in results:
        starts, events, depths = [], [], []
        last_version = 0
        for chunk in result.words():
            found = unpack_events(chunk.words)
            starts.extend(chunk.base - result.base + found.starts)
            events.extend(found.events)
            depths.extend(found.depths)
            assert last_version <= chunk.version <= result.version
            last_version = chunk.version
        where = np.flatnonzero(result.events)
        assert starts == where.tolist()
        assert events == result.events[where].tolist()
        for event, depth in zip(events, depths, strict=True):
            assert depth == k if event == 1 else 1 <= depth <= k


@pytest.mark.parametrize("kernel", ["index", "walk"])
def test_snapshots_follow_a_growing_stream(kernel):
    """Over many spans snapshots are swapped in, always the same ones, and depths deepen."""
    rng = np.random.default_rng(3)
    letters = np.frombuffer(b"ACGT", dtype=np.uint8)
    genome = letters[rng.integers(0, 4, 150_000)]
    sequences = [
        genome[start : start + 5_000].tobytes().decode() for start in rng.integers(0, 140_000, 120)
    ]
    batch = ReadBatch.from_sequences([f"r{i}" for i in range(120)], sequences)

    def run(threads):
        dictionary = Dictionary.empty(15, "canonical")
        with closing(
            StreamMatcher.of(dictionary, mode="grow", kernel=kernel, chunk=70_000, threads=threads)
        ) as matcher:
            return matcher.match([batch], words=True)[0]

    first, again = run(1), run(2)
    np.testing.assert_array_equal(first.events, again.events)
    np.testing.assert_array_equal(first.depths.depths, again.depths.depths)
    np.testing.assert_array_equal(first.depths.nodes, again.depths.nodes)
    np.testing.assert_array_equal(first.depths.versions, again.depths.versions)
    assert len(set(first.depths.versions.tolist())) > 2
    mismatched = first.events == 2
    half = len(mismatched) // 2
    assert first.depths.depths[:70_000][mismatched[:70_000]].max() == 1
    assert first.depths.depths[half:][mismatched[half:]].mean() > 6
    with pytest.raises(ValueError, match="words"):
        StreamMatcher.of(Dictionary.empty(5, "forward"), mode="grow").match([batch])[0].words()


@pytest.mark.parametrize(
    ("mode", "seed", "targets", "k", "enough"),
    [
        *(("frozen", 0, 1, 9, 1), ("frozen", 0, 3, 21, 1), ("frozen", 0, 1, 21, 1 << 20)),
        *(("frozen", 0, 3, 9, 1 << 20), ("frozen", 90, 3, 9, 1), ("frozen", 90, 1, 21, 1 << 20)),
        *(("grow", 0, 1, 9, 1 << 20), ("grow", 0, 3, 21, 1), ("grow", 0, 3, 9, 1)),
    ],
)
def test_batches_together_equal_one_after_the_other(mode, seed, targets, k, enough, monkeypatch):
    monkeypatch.setattr(matcher, "ENOUGH", enough)
    rng = np.random.default_rng(targets)
    records = [(f"t{i}", "".join(rng.choice(list("ACGT"), 60))) for i in range(targets)]
    reads = [(f"r{i}", text[i:] + text) for i, (_, text) in enumerate(records * 5)]
    reads.insert(3, ("empty", ""))
    known = dictionary_of(records, k, "canonical")
    batches = batches_of(reads, [1, 2, 4, 9])
    options = {"mode": mode, "seed_bases": seed, "threads": 1, "chunk": 40, "counted": True}
    one, all_ = StreamMatcher.of(known, **options), StreamMatcher.of(known, **options)
    with closing(one), closing(all_):
        wanted = [one.match([batch])[0] for batch in batches * 2]
        # the second time in the memory of the first
        found = all_.match(batches) + all_.match(batches)
        for want, have in zip(wanted, found, strict=True):
            assert (have.number, have.base, have.version) == (want.number, want.base, want.version)
            assert have.batch is want.batch
            np.testing.assert_array_equal(have.events, want.events)
            np.testing.assert_array_equal(have.new_kmers, want.new_kmers)
            np.testing.assert_array_equal(have.runs, want.runs)
            assert have.default_set == want.default_set
            known_windows = (numbers_of(have, known.index) != NO_SET).sum()
            assert known_windows == (have.runs[:, 1] - have.runs[:, 0]).sum()


@pytest.mark.parametrize(("threads", "wanted"), [(1, 2), (2, 2), (3, 1)])
def test_batches_that_do_not_keep_all_threads_busy_are_joined(threads, wanted, monkeypatch):
    monkeypatch.setattr(matcher, "ENOUGH", 100)
    known = dictionary_of([("one", "ACGTTGCA" * 9)], 9, "canonical")
    batches = batches_of([("a", "ACGTTGCA" * 25), ("b", "TTGCAACG" * 25)], [1])
    with closing(StreamMatcher.of(known, threads=threads)) as one:
        calls = []
        find = one._engine.find
        monkeypatch.setattr(
            one._engine, "find", lambda some, _: calls.append(some) or find(some, _)
        )
        assert [result.batch for result in one.match(batches)] == batches
        assert [len(some) for some in calls] == [wanted]


@pytest.mark.parametrize("targets", [1, 3])
def test_groups_of_reads_are_counted_as_if_they_were_alone(targets):
    """By runs in the text of an index, or by the places of windows where an engine finds none."""
    rng = np.random.default_rng(targets)
    text = "".join(rng.choice(list("ACGT"), 300))
    records = [(f"t{i}", text[50 * i : 50 * i + 150] + text[:40]) for i in range(targets)]
    cuts = rng.integers(0, 250, (40, 2)).tolist()
    reads = [(f"r{i}", text[a : a + b % 90]) for i, (a, b) in enumerate(cuts)]
    labels = rng.integers(-1, 3, len(reads))
    known = dictionary_of(records, 15, "canonical")
    wanted, by_engine = {}, []
    for kernel in ("auto", "walk"):
        with closing(StreamMatcher.of(known, counted=True, kernel=kernel, threads=1)) as one:
            together = TargetCounts(one)
            (batch,) = batches_of(reads, [])
            together.add(one.match([batch])[0], LabelColumn(["a", "b", "c"], labels))
            for group, label in enumerate(["a", "b", "c", None]):
                own = [read for read, of in zip(reads, labels, strict=True) if of % 4 == group]
                alone = TargetCounts(one)
                alone.add(one.match([batches_of(own, [])[0]])[0])
                wanted[label] = {name: row.tolist() for name, row in alone.columns().items()}
                got = {name: row.tolist() for name, row in together.columns(label).items()}
                assert got == wanted[label]
        assert sum(wanted["a"]["matches"]) > 100
        by_engine.append(dict(wanted))
    assert by_engine[0] == by_engine[1]


def test_the_first_batch_finds_repeats_known(monkeypatch):
    """The thread that counts it, or several at once, would look for them again."""
    text = "ACGTTGCATTACGGCATTACGATC"
    known = dictionary_of([("one", text)], 15, "canonical")
    with closing(StreamMatcher.of(known, counted=True)) as matcher:
        monkeypatch.setattr(repeats, "find_repeats", pytest.fail)
        counts = TargetCounts(matcher)
        counts.add(matcher.match(batches_of([("r", text)], []))[0])
        assert counts.columns()["seen"].tolist() == [10, 0]


@pytest.mark.parametrize("strands", ["forward", "canonical", "both"])
def test_growing_on_an_index_lists_none_of_its_kmers(strands, monkeypatch, tmp_path):
    """From records or a file, over a restart; all answers are those of the definition."""
    monkeypatch.setattr(targets, "LARGE", 100)
    monkeypatch.setattr(index.Index, "codes", pytest.fail)
    monkeypatch.setattr(targets, "listed", pytest.fail)
    rng = np.random.default_rng(2)
    k, text = 21, "".join(rng.choice(list("ACGT"), 900))
    records = [("one", text[:400]), ("two", text[300:600] + "N" + text[:50])]
    reads = [(f"r{i}", text[a : a + 150] + "ACCA") for i, a in enumerate(rng.integers(0, 800, 30))]
    reads += [(f"turned{i}", oracle.reverse_complement(read)) for i, (_, read) in enumerate(reads)]
    want = oracle.match(reads, k, strands=strands, mode="grow", records=records)
    made = dictionary_of(records, k, strands)
    made.save(str(tmp_path / "saved"), strands)
    options = {"mode": "grow", "counted": True, "track_tree": True, "chunk": 500}
    results = []
    for known in (made, Dictionary.open(tmp_path / "saved")):
        with closing(StreamMatcher.of(known, start=start_of(results), **options)) as matcher:
            for batch in batches_of(reads, [3, 10, 40])[len(results) :][:2]:
                results += matcher.match([batch])
            assert matcher.tree is None
            with pytest.raises(StreamerError, match="need a tree of its k-mers"):
                matcher.match([batch], depths=True)
            counts = TargetCounts(matcher)
            for result in results:
                counts.add(result)
    assert rows_of(results, made.targets) == want
    codes = np.concatenate([result.new_kmers for result in results])
    assert len(codes) == sum(row[2] == "mismatch" for row in want)
    assert len(codes) + len(oracle.dictionary_of(records, k, strands)) == matcher.kmers
    expected = targets_report(reads, k, strands=strands, mode="grow", records=records)
    assert counts.columns()["seen"].tolist()[:2] == [row[5] for row in expected[:2]]


def test_a_distance_to_too_many_kmers_is_refused_before_anything_is_built(monkeypatch):
    monkeypatch.setattr(index, "MOST_LISTED", 100)
    monkeypatch.setattr(index.TextIndex, "of", pytest.fail)
    text = "".join(np.random.default_rng(4).choice(list("ACGT"), 200))
    known = dictionary_of([("one", text), ("two", text[50:])], 21, "forward")
    with pytest.raises(StreamerError, match="at most 100 are listed"):
        StreamMatcher.of(known, distance=1, strands="both")
