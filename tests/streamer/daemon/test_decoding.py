"""Batches that are decoded together, and answers that replace others."""

from __future__ import annotations

import random

import msgpack
import numpy as np
import pytest

from streamer.daemon.ingest import decode_batches
from streamer.daemon.kept_batches import PARTS, Answers, chosen
from streamer.daemon.stored_messages import Content
from streamer.matching.cuda import PackedReads, pack_batches
from streamer.protocol.payloads import decode_batch, encode_batch, encode_reads
from streamer.protocol.schema import TOPICS
from streamer.protocol.wire import WireError, crc32c_address, pack, raw, seal, unseal
from streamer.sequences.read_batch import ReadBatch

K = 5


def make(batches, sums):
    packed = pack_batches(batches, sums, K, threads=2)
    return [
        None if chunk is None else PackedReads(*batch, chunk)
        for batch, chunk in zip(batches, packed, strict=True)
    ]


def message(frames, **fields):
    """A header and all frames of its message, the last of which is their checksum."""
    header = {"form": "columns"} | fields
    return header, [memoryview(bytes(frame)) for frame in seal([pack(header), *frames])]


def each(header, frames):
    """What is decoded alone."""
    return decode_batch(header, unseal(frames)[1:])


def plain(rng, reads=None, alphabet="ACGTN"):
    lengths = rng.integers(0, 60, rng.integers(0, 9) if reads is None else reads)
    letters = ["".join(rng.choice(list(alphabet), n)) for n in lengths]
    return encode_reads([(f"read{i}", text) for i, text in enumerate(letters)])


def same(found, wanted):
    batch, names = found
    other, other_names = wanted
    assert names == other_names
    assert list(batch.names) == list(other.names)
    assert batch.offsets.tolist() == other.offsets.tolist()
    for packed, expected in zip(batch.two_bits(), other.two_bits(), strict=True):
        assert packed.tolist() == expected.tolist()
    assert batch.bases.tolist() == other.bases.tolist()


def test_isa_l_is_found():
    assert crc32c_address()


def test_plain_batches_are_decoded_together():
    rng = np.random.default_rng(1)
    alphabets = "ACGTN", "ACGT", "acgTU", "ACGTTTTTTTTTTTTTTTTTTTTTTTTTR"
    messages = [message(plain(rng, alphabet=alphabets[i % 4])) for i in range(40)]
    large = ReadBatch(["a"], np.array([0, 70_000]), rng.integers(0, 5, 70_000).astype(np.uint8))
    messages.insert(7, message(encode_batch(large)))
    for found, (header, frames) in zip(decode_batches(messages, make), messages, strict=True):
        assert found is not None
        same(found, each(header, frames))
    assert decode_batches([], make) == []


def test_packed_letters_with_their_context():
    known = {"channel": np.int32(7).tobytes()}
    frames = [*encode_reads([("a", "ACGTACGT")]), msgpack.packb(known)]
    header, frames = message(frames)
    (found,) = decode_batches([(header, frames)], make)
    wanted, _ = each(header, frames)
    assert found is not None
    assert found[0].letters == b"ACGTACGT"
    for batch in (found[0], wanted):
        assert batch.context.channel.tolist() == [7]


def test_frames_that_are_not_aligned():
    header, frames = message(plain(np.random.default_rng(2), reads=6))
    moved = [memoryview(b"x" + bytes(frame))[1:] for frame in frames]
    (found,) = decode_batches([(header, moved)], make)
    assert found is not None
    same(found, each(header, frames))


@pytest.mark.parametrize("seed", range(20))
def test_what_is_damaged_is_left_to_be_told(seed):
    """Whatever is decoded is what decode_batch gives, and what it refuses is not."""
    rng = np.random.default_rng(seed)
    messages = []
    for _ in range(60):
        frames = [bytearray(frame) for frame in plain(rng, reads=int(rng.integers(1, 9)))]
        for _ in range(rng.integers(0, 3)):
            frame = frames[rng.integers(0, 3)]
            if rng.random() < 0.3:
                del frame[rng.integers(0, len(frame) + 1) :]
            elif frame:
                frame[rng.integers(0, len(frame))] = rng.integers(0, 256)
        if rng.random() < 0.1:
            frames = frames[: rng.integers(0, 3)]
        fields = {}
        if rng.random() < 0.1:
            fields["form"] = ["list", None, 3][rng.integers(0, 3)]
        header, frames = message(frames, **fields)
        if rng.random() < 0.3:
            odd = [b"", b"1234", b"123", bytes(frames[-1])[::-1], bytes(frames[-1]) + b"\0"]
            frames[-1] = memoryview(odd[rng.integers(0, len(odd))])
        messages.append((header, frames))
    # an empty batch, a name beyond ASCII, a frame of names that goes on
    messages.append(message([msgpack.packb([]), np.zeros(1, np.int64).tobytes(), b""]))
    messages.append(message(encode_reads([("naïve", "ACGT")])))
    messages.append(message([msgpack.packb(["a"]) + b"\xc0", np.array([0, 1]).tobytes(), b"A"]))
    for found, (header, frames) in zip(decode_batches(messages, make), messages, strict=True):
        try:
            wanted = each(header, frames)
        except WireError:
            assert found is None
        else:
            if found is not None:
                same(found, wanted)


NAMES = ["left", "right", "both", "none"]
TARGETS = {"match": "target", "near": "target", "read": "best_target"}


def random_rows(rng, topic, reads):
    """Rows of random reads, in their order; a target is a set of names, a name or None."""
    rows = []
    for read in range(reads):
        for _ in range(1 if topic == "read" else rng.choice((0, 0, 1, 3))):
            row = {c.name: rng.randrange(3) for c in TOPICS[topic].columns} | {"read": read}
            if topic in TARGETS:
                some = tuple(sorted(rng.sample(NAMES, rng.randint(0, 2))))
                row[TARGETS[topic]] = (some or None) if topic != "read" else (*some, None)[0]
            rows.append(row)
    return rows


def content_of(rng, topic, rows):
    """A message with these rows, whose sets and targets have any numbers."""
    fields, column = {}, TARGETS.get(topic)
    numbers = dict(zip(NAMES, rng.sample(range(100), len(NAMES)), strict=True))
    rows = [dict(row) for row in rows]
    if column is not None:
        fields["targets"] = [[number, name] for name, number in numbers.items()]
    if column == "target":
        sets = list(dict.fromkeys(row[column] for row in rows if row[column]))
        places = rng.sample(range(100), len(sets))
        fields["sets"] = [
            [place, [numbers[name] for name in names]]
            for place, names in zip(places, sets, strict=True)
        ]
        known = dict(zip(sets, places, strict=True)) | {None: 0xFFFFFFFF}
        for row in rows:
            row[column] = known[row[column]]
    elif column is not None:
        for row in rows:
            row[column] = (numbers | {None: -1})[row[column]]
    columns = TOPICS[topic].columns
    described = [(c.name, c.type_name, len(rows)) for c in columns]
    frames = [raw(np.array([row[c.name] for row in rows], c.dtype)) for c in columns]
    return Content(fields, described, frames)


def contents_of(rng, said):
    """Messages for the topics that have rows."""
    return {topic: content_of(rng, topic, rows) for topic, rows in said.items() if rows}


def of_read(said, read):
    """What is said of a read: which snapshot was searched is left out."""
    return {
        topic: [
            {c: v for c, v in row.items() if c != "snapshot"} for row in rows if row["read"] == read
        ]
        for topic, rows in said.items()
    }


@pytest.mark.parametrize("seed", range(60))
def test_answers_are_compared_and_replaced(seed):
    rng = random.Random(seed)
    reads = rng.choice((0, 1, 2, 7))
    meanings = {}
    said = {topic: random_rows(rng, topic, reads) for topic in PARTS}
    answers = Answers(contents_of(rng, said), meanings)
    for _ in range(4):
        other = {topic: random_rows(rng, topic, reads) for topic in PARTS}
        # some reads stay, and some differ in one row only
        for topic, rows in said.items():
            kept = {read for read in range(reads) if rng.random() < 0.6}
            mixed = [r for r in rows if r["read"] in kept]
            mixed += [r for r in other[topic] if r["read"] not in kept]
            other[topic] = sorted(mixed, key=lambda row: row["read"])
        others = Answers(contents_of(rng, other), meanings)
        changed = answers.changed(others, reads)
        want = [of_read(said, read) != of_read(other, read) for read in range(reads)]
        assert changed.tolist() == want
        # a revision has the rows of changed reads only
        part = {topic: [row for row in rows if want[row["read"]]] for topic, rows in other.items()}
        sent = {t: chosen(t, c, changed) for t, c in contents_of(rng, other).items()}
        for topic, content in sent.items():
            assert all(rows == len(part[topic]) for *_, rows in content.described)
            named = {row[TARGETS[topic]] for row in part[topic]} if topic in TARGETS else set()
            used = {n for names in named - {None} for n in ([names] if topic == "read" else names)}
            assert {name for _, name in content.fields.get("targets", ())} == used
        answers.replace(Answers(sent, meanings), changed)
        said = other
        assert not answers.changed(others, reads).any()
        rows = said["read"]
        assert answers.totals(np.ones(reads, np.bool_)) == {
            "matches": sum(row["matches"] for row in rows),
            "mismatches": sum(row["mismatches"] for row in rows),
            "reads_on_target": sum(row["best_target"] is not None for row in rows),
        }
