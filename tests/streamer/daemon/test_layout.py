"""What the feed says about groups of batches, laid out by one kernel, against batch by batch."""

from __future__ import annotations

from types import SimpleNamespace

import msgpack
import numpy as np
import pytest

from streamer.daemon.batch_record import Matched
from streamer.daemon.layout import Sums
from streamer.daemon.publish import Group
from streamer.dictionary.targets import NO_SET, TargetSets
from streamer.journal.record import Key
from streamer.matching import reports
from streamer.matching.events import Events
from streamer.matching.result import BatchResult
from streamer.protocol.payloads import decode_feed, encode_feed
from streamer.protocol.wire import ISA_L, seal
from streamer.sequences.read_batch import ReadBatch
from tests.matching_results import intervals_by_event

TOPICS = ("match", "mismatch", "read")
HEAD = {"v": 2, "stream": "0" * 16, "epoch": 1, "at": 2, "prev": 1, "time": 3}
TARGETS = TargetSets(["one", "two"], np.array([0, 1, 3]), np.array([1, 0, 1], np.int32))


def result_of(rng, k, lengths, *, default_set=0, many=False, kind="mixed"):
    """A batch of reads with events in runs of any length; ``kind`` leaves out one of them."""
    events = []
    for length in lengths:
        windows, read = max(length - k + 1, 0), []
        while len(read) < windows:
            event = {"none": 2, "all": 1}.get(kind) or rng.integers(0, 3)
            read += [event] * rng.choice([1, 2, 7, 8, 55, 56, 57, 64, 130, 1000])
        events += read[:windows] + [0] * (length - windows)
    codes = np.array(events, np.uint8)
    offsets = np.cumsum([0, *lengths])
    letters = np.zeros(codes.size, np.uint8)
    batch = ReadBatch([f"r{i}" for i in range(len(lengths))], offsets, letters)
    runs = np.zeros((0, 5), np.int64)
    if many:
        # of any length within a read, the next with the same or another set, or after a gap
        hits, read = codes == 1, np.repeat(np.arange(len(lengths)), lengths)
        new = np.diff(read, prepend=-1) > 0
        cuts = hits & (new | ~np.roll(hits, 1) | (rng.random(codes.size) < 0.1))
        ends = hits & np.roll(cuts | ~hits | new, -1)
        at, stop = np.flatnonzero(cuts), np.flatnonzero(ends) + 1
        runs = np.column_stack((at, stop, at, np.ones_like(at), rng.integers(0, 2, at.size)))
        runs = runs[rng.random(at.size) < 0.8]
        default_set = NO_SET
    return BatchResult(
        number=3,
        base=70,
        batch=batch,
        k=k,
        found=Events.of(codes),
        runs=runs,
        default_set=np.uint32(default_set),
        new_kmers=np.zeros(0, np.uint64),
        new_starts=np.zeros(0, np.int64),
        seeded=0,
        version_before=1,
        version=1,
        depths=None,
    )


def matched_of(result):
    names = msgpack.packb(list(result.batch.names))
    accepted = SimpleNamespace(names=names, key=Key("p", 5, 8, 0, b""))
    return Matched(1, accepted, result, SimpleNamespace(targets=TARGETS))


def publications(group, *, intervals):
    return Group({}, group).publications(intervals=intervals)


def random_group(seed, batches):
    rng = np.random.default_rng(seed)
    group = []
    for _ in range(batches):
        k = int(rng.choice([1, 2, 5, 21, 31]))
        lengths = rng.integers(0, rng.choice([3, 40, 300, 3000]), rng.integers(0, 9)).tolist()
        kind = rng.choice(["mixed", "mixed", "none", "all"])
        default_set = 0 if kind == "all" else rng.choice([0, int(NO_SET)])
        many = bool(rng.random() < 0.2)
        result = result_of(rng, k, lengths, default_set=default_set, many=many, kind=kind)
        group.append(matched_of(result))
    return group


def expected(matched):
    """Header fields and columns by topic, from the reports of a batch."""
    about = {"batch": 3, "base": 70, "producer": "p", "producer_epoch": 5, "producer_seq": 8}
    about |= {"version_before": 1, "version": 1, "k": matched.result.k}
    about |= {"reads": len(matched.result.batch), "bases": matched.result.batch.symbols}
    result, targets = matched.result, matched.dictionary.targets
    rows = reports.reads(result, targets)
    sums = [int(rows[name].sum()) for name in ("windows", "matches", "skipped")]
    sums = Sums(*sums, int((rows["best_target"] >= 0).sum()))
    hits, misses = intervals_by_event(result)
    rows["read"] = rows["read"].astype(np.uint32)
    sets = [int(number) for number in np.unique(hits["target"]) if number != NO_SET]
    best = [int(target) for target in np.unique(rows["best_target"]) if target >= 0]
    members = {0: [1], 1: [0, 1]}
    held = sorted({target for number in sets for target in members[number]})
    fields = {
        "match": {
            "sets": [[number, members[number]] for number in sets],
            "targets": [[target, targets.names[target]] for target in held],
        },
        "mismatch": {},
        "read": {"targets": [[target, targets.names[target]] for target in best]},
    }
    columns = {"match": hits, "mismatch": misses, "read": rows}
    return sums, {topic: (about | fields[topic], columns[topic]) for topic in columns}


def assert_same(found, want):
    assert [*found] == [*want]
    for name, values in want.items():
        assert found[name].dtype == values.dtype, name
        assert found[name].tolist() == values.tolist(), name


@pytest.mark.parametrize("batches", [0, 1, 2, 40])
@pytest.mark.parametrize("intervals", [True, False])
@pytest.mark.parametrize("fast", [True, False])
def test_groups_say_what_batches_say(batches, intervals, fast, monkeypatch):
    if fast:
        assert not ISA_L.missing
    else:
        monkeypatch.setattr(ISA_L, "missing", ["crc32_iscsi"])
    for seed in range(4):
        group = random_group(seed, batches)
        found = publications(group, intervals=intervals)
        assert [publication.matched for publication in found] == group
        for matched, publication in zip(group, found, strict=True):
            sums, want = expected(matched)
            counts = publication.counts
            assert counts["windows"] == sums.windows
            assert counts["matches"] == sums.matches
            assert counts["mismatches"] == sums.windows - sums.matches
            assert counts["skipped"] == sums.skipped
            assert counts["reads_on_target"] == sums.reads_on_target
            said = [sums.matches, sums.windows - sums.matches, sums.windows, True]
            topics = ("match", "mismatch", "word", "read")
            assert list(publication.prev) == [
                t for t, there in zip(topics, said, strict=True) if there
            ]
            for topic in TOPICS:
                if not intervals and topic != "read":
                    continue
                sent = frames_of(publication.message(topic, {"v": 2}))
                content = publication.content(topic)
                assert [bytes(frame) for frame in content.frames] == sent[3:-1]
                described = {"columns": list(map(list, content.described))}
                told = {"v": 2} | publication.about | content.fields | described
                assert told == msgpack.unpackb(sent[1])
                header = {"v": 2} | want[topic][0]
                plain = encode_feed(topic, header, matched.accepted.names, want[topic][1])
                assert msgpack.unpackb(sent[1]) == msgpack.unpackb(plain[1])
                # the order of the fields is not told
                assert [sent[0], *sent[2:-1]] == [bytes(f) for f in (plain[0], *plain[2:-1])]
                assert sent == seal(sent[:-1])


def columns_of(publication, topic):
    """The columns of a message as it is sent."""
    header = HEAD | {"topic": f"{topic}."}
    return decode_feed(frames_of(publication.message(topic, header))).columns


def frames_of(message):
    frames = []
    for frame in message:
        frames += frame.frames() if hasattr(frame, "frames") else [bytes(frame)]
    return frames


def test_a_message_is_read_back():
    rng = np.random.default_rng(5)
    matched = matched_of(result_of(rng, 21, [1000] * 30))
    head = HEAD | {"topic": "read."}
    frames = frames_of(publications([matched], intervals=False)[0].message("read", head))
    message = decode_feed(frames)
    assert_same(message.columns, expected(matched)[1]["read"][1])
    assert seal(frames[:-1]) == frames


def test_bits_may_lie_anywhere_and_go_on_behind():
    """A card gives the bits of all batches in one array, in words of 32."""
    rng = np.random.default_rng(6)
    results = [result_of(rng, 9, rng.integers(0, 200, 5).tolist()) for _ in range(6)]
    words = [-(-result.batch.symbols // 32) for result in results]
    joint = [np.zeros(sum(words) + 2, np.uint32) for _ in range(2)]
    group, at = [], 0
    for result, count in zip(results, words, strict=True):
        for whole, bits in zip(joint, result.found.bits, strict=True):
            whole[at : at + count] = bits[:count]
        parts = tuple(whole[at : at + count] for whole in joint)
        object.__setattr__(result, "found", Events(result.batch.symbols, parts))
        group.append(matched_of(result))
        at += count
    for publication in publications(group, intervals=True):
        want = expected(publication.matched)[1]
        for topic in TOPICS:
            assert_same(columns_of(publication, topic), want[topic][1])


def test_what_is_sent_outlives_its_publication():
    rng = np.random.default_rng(7)
    group = [matched_of(result_of(rng, 21, [500] * 200)) for _ in range(3)]
    want = [frames_of(p.message("match", {})) for p in publications(group, intervals=True)]
    kept = [p.message("match", {}) for p in publications(group, intervals=True)]
    for _ in range(5):
        publications(group, intervals=True)
    assert [frames_of(message) for message in kept] == want


def test_events_that_change_at_every_window():
    codes = np.tile(np.array([1, 2], np.uint8), 1 << 20)
    offsets = np.array([0, codes.size])
    result = result_of(np.random.default_rng(0), 1, [])
    batch = ReadBatch(["r"], offsets, np.zeros(codes.size, np.uint8))
    for name, value in (("batch", batch), ("found", Events.of(codes))):
        object.__setattr__(result, name, value)
    (publication,) = publications([matched_of(result)], intervals=True)
    laid = columns_of(publication, "match")
    assert (laid["windows"] == 1).all()
    assert laid["start"].tolist() == list(range(0, codes.size, 2))
