"""The engine on CUDA devices against the definition, one window at a time."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from itertools import count

import numpy as np
import pytest

from benchmarks.timing import Timeline
from gpu.exact import (
    ChunkPiece,
    DeviceLostError,
    Pipeline,
    bucket_table,
    chunk_match,
    device_tree,
    kmer_set,
    pipeline,
    walk,
)
from gpu.exact.kmer_set import KmerSet
from gpu.exact.pipeline import ExactFlight
from streamer.dictionary.targets import Dictionary
from streamer.errors import StreamerError
from streamer.matching import cuda, match_engine, tree_worker
from streamer.matching.cuda import PackedMatching
from streamer.matching.matcher import StreamMatcher
from tests.gpu import placement
from tests.gpu.placement import SIMULATED
from tests.matching_results import batch_of, rows_of
from tests.reference import exact as oracle
from tests.reference.exact import decode_kmer, unpack_events
from trie.trees.hybrid_tree import snapshot
from trie.windows import MATCH

pytestmark = placement.marks()


@pytest.fixture(scope="module", autouse=True)
def small_blocks():
    """Warps for the simulator, and blocks and tables of a size that it can carry."""
    modules = (bucket_table, device_tree, kmer_set, chunk_match, walk)
    with placement.small_blocks(32, *modules) as patch:
        # chunks of a few symbols are chunks here
        patch.setattr(cuda, "PACKED_SPANS", 1)
        patch.setattr(match_engine, "LONG_SPAN", 1)
        patch.setattr(match_engine, "SHORT_SPAN", 1)
        patch.setattr(tree_worker, "FIRST_SNAPSHOT", 8)
        patch.setattr(kmer_set, "FIRST_BITS", 4)
        if SIMULATED:
            patch.setattr(walk, "JUMP_LEVEL", 1)
        yield


def make_reads(k, total, seed, reads=3, gaps=2):
    """Reads of random letters in which some k-mers come again, also turned round."""
    rng = np.random.default_rng(seed)
    letters = rng.choice(list("ACGT"), total // 2)
    text = "".join(letters)
    text += oracle.reverse_complement(text)[: total // 4]
    text += text[: total - len(text)]
    text = list(text)
    for at in rng.integers(0, total, gaps):
        text[at] = "N"
    cuts = sorted(rng.integers(0, total + 1, reads - 1).tolist())
    bounds = [0, *cuts, total]
    return [
        (f"r{i}", "".join(text[a:b]))
        for i, (a, b) in enumerate(zip(bounds, bounds[1:], strict=False))
    ]


def check(
    k, strands, mode, *, seed=0, records=(), chunk=40, total=150, kernel="auto", depths=False,
    streams=2, cards=(0,), batches=1, number=1,
):  # fmt: skip
    """One run against the oracle; what it found."""
    reads = make_reads(k, total, number)
    known = (
        Dictionary.from_batches([batch_of(records)], k, strands)
        if records
        else Dictionary.empty(k, strands)
    )
    want = oracle.match(reads, k, strands=strands, mode=mode, records=list(records), seed=seed)
    matcher = StreamMatcher.of(
        known, mode=mode, seed_bases=seed, kernel=kernel, chunk=max(k, chunk), threads=2,
        device="cuda", streams=streams, cards=cards, track_tree=mode == "grow",
    )  # fmt: skip
    with closing(matcher):
        assert matcher.device == "cuda"
        parts = (
            [reads[i::batches] for i in range(batches)] if batches == 1 else [reads[:1], reads[1:]]
        )
        results = [matcher.match([batch_of(part)], words=depths)[0] for part in parts]
        assert rows_of(results, known.targets) == want
        new = [
            (result.base + int(start), decode_kmer(int(code), k))
            for result in results
            for code, start in zip(result.new_kmers, result.new_starts, strict=True)
        ]
        assert new == sorted(new)
        text = "".join(sequence for _, sequence in reads)
        for start, kmer in new:
            assert oracle.stored(text[start : start + k], strands) == kmer
        held = set(oracle.dictionary_of(records, k, strands))
        assert len({kmer for _, kmer in new}) == len(new)
        assert not {kmer for _, kmer in new} & held
        assert matcher.kmers == len(held) + len(new)
        if mode == "grow":
            mismatches = sum(row[2] == "mismatch" for row in want)
            assert len(new) - sum(result.seeded for result in results) == mismatches
            np.testing.assert_array_equal(
                [decode_kmer(int(code), k) for code in matcher._engine.codes()],
                sorted(held | {kmer for _, kmer in new}),
            )
        if depths:
            check_depths(results, reads, k, strands, mode, held | {kmer for _, kmer in new})
    return results


@pytest.mark.parametrize("cards", [(0,), (0, 0)])
@pytest.mark.parametrize("strands", ["canonical", "forward"])
@pytest.mark.parametrize("lengths", [[40, 0, 70, 4, 33, 8], [32, 64], [200, 12], [0, 230, 0]])
def test_batches_that_are_packed_as_they_come(strands, lengths, cards, monkeypatch):
    monkeypatch.setattr(cuda, "_STEP", 64)
    monkeypatch.setattr(cuda, "_PER_CARD", 64)
    k, records = 5, make_reads(5, 60, 8)
    reads = [make_reads(k, length, 20 + length, gaps=length // 16) for length in lengths]
    want = [
        oracle.match(part, k, strands=strands, mode="frozen", records=records) for part in reads
    ]
    # one target, all of whose k-mers are known from the start
    records = [("t", "N".join(sequence for _, sequence in records))]
    known = Dictionary.from_batches([batch_of(records)], k, strands)
    matcher = StreamMatcher.of(
        known, mode="frozen", chunk=160, threads=2, device="cuda", cards=cards
    )
    with closing(matcher):
        batches = []
        for part in reads:
            plain = batch_of(part)
            letters = "".join(sequence for _, sequence in part).encode()
            batches.append(matcher.make_batch(plain.names, plain.offsets, letters))
            np.testing.assert_array_equal(batches[-1].bases, plain.bases)
        # the longest is cut, and what comes behind it is counted on
        found = matcher.match(batches) + matcher.match(batches[:1])
    for result, rows in zip(found, [*want, want[0]], strict=True):
        have = [(row[0], row[1], row[2]) for row in rows_of([result], known.targets)]
        assert have == [(row[0], row[1], row[2]) for row in rows]
    assert [result.number for result in found] == list(range(len(lengths) + 1))
    assert [result.base for result in found] == np.cumsum([0, *lengths]).tolist()


def check_depths(results, reads, k, strands, mode, held):
    """Event words name the same events; frozen depths are those of the definition."""
    prefixes = oracle.prefixes_of(held, strands)
    text = "".join(sequence for _, sequence in reads)
    for result in results:
        for chunk in result.words():
            found = unpack_events(chunk.words)
            starts = chunk.base - result.base + found.starts
            np.testing.assert_array_equal(found.events, result.events[starts])
            for start, event, depth in zip(starts, found.events, found.depths, strict=True):
                assert depth == k if event == MATCH else 1 <= depth <= k
                if mode == "frozen" and event != MATCH:
                    at = result.base + int(start)
                    assert depth == oracle.depth_of(text[at : at + k], prefixes, strands)


RECORDS = (("a", "ACGTTGCAACGTAGGCTTAACGGA"), ("b", "TTAACGGATCCGGTTACGTTGCAACG"))

CASES = [
    # k, strands, mode, options
    (1, "canonical", "grow", {"total": 70}),
    (2, "both", "grow", {"chunk": 7, "total": 60}),
    (3, "forward", "grow", {"chunk": 33, "streams": 1}),
    (5, "canonical", "grow", {"records": RECORDS, "depths": True, "total": 100}),
    (8, "both", "grow", {"records": RECORDS, "chunk": 31, "seed": 30}),
    (15, "canonical", "grow", {"seed": 40, "chunk": 50}),
    (15, "forward", "grow", {"chunk": 64, "kernel": "walk", "total": 140}),
    (16, "canonical", "grow", {"chunk": 32, "depths": True, "total": 110}),
    (21, "canonical", "grow", {"chunk": 1000, "batches": 2}),
    (31, "both", "grow", {"chunk": 63, "streams": 1}),
    (31, "canonical", "grow", {"chunk": 65}),
    (7, "canonical", "grow", {"cards": (0, 0), "chunk": 30}),
    (15, "both", "grow", {"cards": (0, 0, 0), "chunk": 25, "seed": 50, "total": 130}),
    (4, "canonical", "frozen", {"records": RECORDS, "chunk": 20}),
    (6, "both", "frozen", {"records": RECORDS, "depths": True, "total": 100}),
    (5, "forward", "frozen", {"records": RECORDS[:1], "streams": 1}),
    (13, "canonical", "frozen", {"records": RECORDS[:1], "chunk": 32}),
    (14, "canonical", "frozen", {"records": RECORDS[1:], "kernel": "shuffle", "chunk": 40}),
    (3, "canonical", "frozen", {"seed": 30, "chunk": 32}),
    (9, "canonical", "frozen", {"seed": 60, "kernel": "walk", "depths": True, "total": 110}),
    (5, "canonical", "frozen", {"records": RECORDS, "cards": (0, 0), "chunk": 30}),
    (4, "canonical", "grow", {"kernel": "naive", "chunk": 40, "total": 80}),
    (15, "canonical", "grow", {"kernel": "shuffle", "chunk": 60, "total": 120, "seed": 30}),
    (15, "canonical", "grow", {"kernel": "buckets", "chunk": 60, "total": 120, "streams": 1}),
]


@pytest.mark.parametrize(
    ("number", "case"),
    list(enumerate(CASES)),
    ids=lambda value: "-".join(map(str, value[:3])) if isinstance(value, tuple) else str(value),
)
def test_equals_the_definition(number, case):
    k, strands, mode, options = case
    check(k, strands, mode, number=number, **options)


@pytest.mark.parametrize("depths", [False, True])
def test_results_are_copied_out_in_any_order(depths, monkeypatch):
    """Each GPU's thread copies its own, and the ends of chunks overlap."""

    def copied(found):
        arrays = {name: getattr(found, name) for name in ("starts", "matches", "words", "sets")}
        return replace(found, **{name: a.copy() for name, a in arrays.items() if a is not None})

    usual = Pipeline.map

    def backwards(engine, take, pieces, *, ahead):
        kept = list(usual(engine, copied, pieces, ahead=ahead))
        return reversed([take(found) for found in reversed(kept)])

    monkeypatch.setattr(Pipeline, "map", backwards)
    check(5, "canonical", "frozen", records=RECORDS, chunk=30, depths=depths)


@pytest.mark.parametrize("seed", [0, 70])
@pytest.mark.parametrize("mode", ["frozen", "grow"])
def test_every_chunk_sees_the_snapshot_that_it_would_see_on_the_cpu(mode, seed):
    """Versions, depths and trie-nodes are equal too, with one stream and with two."""
    reads = make_reads(7, 160, 21)
    found = []
    for device, streams in (("cpu", 1), ("cuda", 1), ("cuda", 2)):
        known = Dictionary.from_batches([batch_of(RECORDS)], 7, "canonical")
        matcher = StreamMatcher.of(
            known, mode=mode, seed_bases=seed, chunk=20, device=device, streams=streams, cards=(0,),
            track_tree=True,
        )  # fmt: skip
        with closing(matcher):
            results = [
                matcher.match([batch_of(part)], words=True)[0] for part in (reads[:1], reads[1:])
            ]
        words = [chunk for result in results for chunk in result.words()]
        found.append(
            [(result.version_before, result.version) for result in results]
            + [(chunk.base, chunk.version, chunk.words.tolist()) for chunk in words]
        )
    several = mode == "grow" or seed > 0
    assert (len({version for _, version, *_ in found[0]}) > 1) == several
    assert found[1] == found[0]
    assert found[2] == found[0]


@pytest.mark.parametrize(
    ("mode", "kernel", "cards", "fails"),
    [
        ("grow", "auto", (0,), 0),
        ("grow", "walk", (0,), 0),
        ("grow", "auto", (0, 0), 0),
        ("frozen", "auto", (0,), 0),
        ("grow", "auto", (0,), 6),
        ("grow", "auto", (0,), 9),
    ],
)
def test_growth_stops_at_the_limit(mode, kernel, cards, fails, monkeypatch):
    """In the same batch for any chunks, and if the CPU takes over before or behind it."""
    reads = make_reads(9, 300, 4, reads=9)
    parts = [reads[at : at + 3] for at in (0, 3, 6)]
    asked = {"mode": mode, "seed": 250 if mode == "frozen" else 0}
    kmers = [len(new) for new in oracle.match_limited(parts, 9, 0, **asked)[1]]
    limit = kmers[0] + 1
    rows, brought, known = oracle.match_limited(parts, 9, limit, **asked)
    assert kmers[2] > len(brought[2]) == 0 < len(brought[1])
    for chunk in (40, 90) if not fails else (40,):
        told = []
        matcher = StreamMatcher.of(
            Dictionary.empty(9, "canonical"), mode=mode, seed_bases=asked["seed"], chunk=chunk,
            max_kmers=limit, kernel=kernel, device="cuda", cards=cards, track_tree=True,
            on_fallback=told.append if fails else None,
        )  # fmt: skip
        if fails:
            failing(ExactFlight, "send", fails, monkeypatch)
        with closing(matcher):
            batches = [batch_of(part) for part in parts]
            results = matcher.match(batches[:1]) + matcher.match(batches[1:])
            assert rows_of(results, matcher.dictionary.targets) == rows
            assert matcher.kmers == len(known)
            assert matcher.limited == (mode == "grow")
            assert matcher.device == ("cpu" if fails else "cuda")
            tree = matcher.latest_snapshot().tree
            codes = np.sort(np.concatenate([result.new_kmers for result in results]))
            np.testing.assert_array_equal(tree.inmaps, snapshot(codes, 9).inmaps)
        assert [len(new) for new in brought] == [result.new_kmers.size for result in results]
        assert len(told) == (fails > 0)


def failing(owner, name, number, monkeypatch):
    """The call of that number of a method, from 1 on, fails as a lost card does."""
    done, calls = getattr(owner, name), count(1)

    def call(*arguments):
        if next(calls) == number:
            raise DeviceLostError("the CUDA device failed: gone")
        return done(*arguments)

    monkeypatch.setattr(owner, name, call)


@pytest.mark.parametrize(
    ("step", "number", "kernel"), [("send", 4, "auto"), ("land", 4, "auto"), ("land", 5, "walk")]
)
def test_a_failed_card_is_taken_over_by_the_cpu(step, number, kernel, monkeypatch):
    """In the middle of a growing stream, with nothing lost; or it is one line.

    Nor is anything known too early: the tree has k-mers of the batch that is matched again.
    """
    reads = make_reads(9, 220, 3, reads=4)
    want = oracle.match(reads, 9, mode="grow")
    for told in ([], None):
        known = Dictionary.empty(9, "canonical")
        matcher = StreamMatcher.of(
            known, mode="grow", chunk=30, device="cuda", cards=(0,), track_tree=True, kernel=kernel,
            on_fallback=None if told is None else told.append,
        )  # fmt: skip
        failing(ExactFlight, step, number, monkeypatch)
        with closing(matcher):
            parts = [batch_of(reads[:2]), batch_of(reads[2:])]
            if told is None:
                with pytest.raises(
                    StreamerError,
                    match=r"^the CUDA device failed: gone; use the device cpu or auto$",
                ):
                    [matcher.match([part])[0] for part in parts]
                continue
            results = [matcher.match([part])[0] for part in parts]
            assert matcher.device == "cpu"
            assert told == ["the CUDA device failed: gone; matching on the CPU"]
            assert rows_of(results, known.targets) == want
            assert results[0].version_before == 1
            assert results[1].version_before == results[0].version
        monkeypatch.undo()


def test_a_card_that_fails_when_depths_are_first_asked_for(monkeypatch):
    """The tree is made of what the card knows; without it, of what it has told."""
    reads, told = make_reads(9, 120, 3, reads=4), []
    known = Dictionary.empty(9, "canonical")
    matcher = StreamMatcher.of(
        known, mode="grow", chunk=30, device="cuda", cards=(0,), on_fallback=told.append
    )
    with closing(matcher):
        results = [matcher.match([batch_of(reads[:2])])[0]]
        failing(KmerSet, "codes", 1, monkeypatch)
        results += [matcher.match([batch_of(reads[2:])], words=True)[0]]
    assert told == ["the CUDA device failed: gone; matching on the CPU"]
    assert rows_of(results, known.targets) == oracle.match(reads, 9, mode="grow")


def test_a_fixed_dictionary_is_sent_once(monkeypatch):
    """Once as event words need it and once more with its buckets, whatever is asked for when."""
    trees, made = [], pipeline.DeviceTree
    monkeypatch.setattr(
        pipeline, "DeviceTree", lambda *args, **named: trees.append(named) or made(*args, **named)
    )
    known = Dictionary.from_batches([batch_of(RECORDS)], 14, "canonical")
    engine = card_engine(known)
    tree, slot = snapshot(known.codes, 14), engine.cards[0].slots[0]
    for words in (True, True, False, True, False):
        held = engine.cards[0].tree(tree, 1, "default", slot, words=words)
        assert words or held.table is not None
    assert trees == [{"with_buckets": False}, {"with_buckets": True}]
    engine.close()


def card_engine(known):
    """An engine without anything on the card yet."""
    return Pipeline(known.k, known.strands, chunk=64)


def test_a_batch_too_long_to_be_packed_as_one(monkeypatch):
    monkeypatch.setattr(PackedMatching, "longest", 90)
    reads = [make_reads(5, length, length) for length in (80, 120)]
    records = [("t", "N".join(sequence for _, sequence in RECORDS))]
    known = Dictionary.from_batches([batch_of(records)], 5, "canonical")
    matcher = StreamMatcher.of(known, mode="frozen", chunk=64, device="cuda", cards=(0,))
    with closing(matcher):
        batches = [batch_of(part) for part in reads]
        found = [matcher.match([batch])[0] for batch in batches] + matcher.match(batches)
    for result, part in zip(found, reads * 2, strict=True):
        assert rows_of([result], known.targets) == oracle.match(
            part, 5, mode="frozen", records=records
        )


def test_small_chunks_do_not_pin_many_buffers(monkeypatch):
    """Half a million of them took most of a minute, where chunks had 64 symbols."""
    engine = Pipeline(5, "forward", chunk=64, threads=2)
    engine.load(np.zeros(0, np.uint64), np.zeros(0, np.uint32), growing=False)
    pinned, make = [], pipeline.cuda.pinned_array
    monkeypatch.setattr(
        pipeline.cuda, "pinned_array", lambda *given: pinned.append(given) or make(*given)
    )
    piece = ChunkPiece(np.zeros(64, np.uint8), np.array([0, 64]))
    for _ in range(2):
        empty = engine.map(lambda found: not found.matches.any(), [piece] * 120, ahead=True)
        assert sum(empty) == 120
    # of two tasks, what they have left over, and the chunks in flight
    assert len(pinned) <= 2 * (3 * pipeline.MOST_TOGETHER + 3)
    engine.close()


@pytest.mark.filterwarnings("ignore:Simulator timings")
def test_a_timeline_has_every_kind_of_work():
    engine, timeline = Pipeline(5, "forward", chunk=32), Timeline()
    engine.load(np.zeros(0, np.uint64), np.zeros(0, np.uint32), growing=True)
    bases = np.arange(64, dtype=np.uint8) % 3
    pieces = [ChunkPiece(bases[:32], np.array([0, 32]), 32 * i, grow=True) for i in range(2)]
    with timeline.recording():
        assert list(engine.map(lambda found: found.codes.size, pieces)) == [3, 0]
    bars = timeline.activities()
    assert {bar.row for bar in bars} >= {"HtoD", "kernel", "DtoH", "CPU"}
    assert {bar.stream for bar in bars} == {0, 1}
    engine.close()
