"""Messages of the feed as clients take them: damage, additions, revisions."""

from __future__ import annotations

import json
import random

import msgpack
import numpy as np
import pytest

from streamer.client import Control, Producer, Retract, Settled, Upgrade
from streamer.client.message_tables import table, tables
from streamer.client.messages import typed
from streamer.protocol.payloads import decode_feed, encode_feed, encode_notice
from streamer.protocol.schema import NO_TARGET, TOPICS
from streamer.protocol.wire import WireError, seal
from tests.daemon_kit import running, write_fasta
from tests.fuzz.mutation import ROWS
from tests.reload_kit import answers, batches_of, configured, sources_of
from tests.waiting import DEADLINE

KINDS = {name: {c.name: c.dtype for c in topic.columns} for name, topic in TOPICS.items()}
OF_BATCHES = "match", "mismatch", "near", "ltb", "delta", "word", "read"
NAMES = ["a", "b", "c"]
HEADER = {"v": 2, "stream": "00112233445566ff", "epoch": 5, "at": 17, "prev": 3, "time": 9}
HEADER |= {"batch": 0, "base": 0, "producer": "p", "producer_epoch": 1, "producer_seq": 1}
HEADER |= {"version_before": 1, "version": 1, "k": 11, "distance": 2, "seeded": 1}


def columns_of(topic):
    return {name: np.array(ROWS[topic][name][1], kind) for name, kind in KINDS[topic].items()}


def message(topic, /, columns=None, names=NAMES, **fields):
    """The frames of a message with a checksum that is right; a field of None is left out."""
    header = HEADER | {"topic": f"{topic}.", "targets": [[4, "phage"]], "sets": [[4, [4]]]} | fields
    header = {key: value for key, value in header.items() if value is not None}
    columns = columns_of(topic) if columns is None else columns
    return [bytes(f) for f in encode_feed(topic, header, msgpack.packb(names), columns)]


def rows_of(frames):
    return table(typed(decode_feed(frames))).records()


def refused(frames):
    with pytest.raises(WireError) as caught:
        typed(decode_feed(frames))
    return str(caught.value)


@pytest.mark.parametrize("topic", ["match", "near", "read"])
def test_what_a_later_daemon_adds_to_arrays_of_fixed_length_is_ignored(topic):
    more = {"targets": [[4, "phage", 0.5, "more"]]}
    if topic != "read":
        more["sets"] = [[4, [4], 1, "more"]]
    later = message(topic, **more)
    header = msgpack.unpackb(later[1])
    header["columns"] = [[*column, "more"] for column in header["columns"]]
    later = seal([later[0], msgpack.packb(header), *later[2:-1]])
    assert rows_of(later) == rows_of(message(topic))


@pytest.mark.parametrize("topic", OF_BATCHES)
def test_what_is_right_is_taken(topic):
    rows = rows_of(message(topic))
    assert len(rows) == max(map(len, columns_of(topic).values()))
    assert {row["read"] for row in rows if "read" in row} <= set(NAMES)
    nothing = {name: values[:0] for name, values in columns_of(topic).items()}
    assert rows_of(message(topic, nothing, names=[], targets=None, sets=None, seeded=0)) == []


@pytest.mark.parametrize("topic", OF_BATCHES)
def test_columns_that_are_not_those_of_the_topic(topic):
    for name in KINDS[topic]:
        columns = columns_of(topic)
        values = columns.pop(name)
        said = refused(message(topic, columns))
        assert said.startswith(f"topic '{topic}', record 17: its columns are ")
        other = np.int64 if values.dtype == np.uint64 else np.uint64
        assert f"{name} {np.dtype(other)}" in refused(
            message(topic, columns | {name: values.astype(other)})
        )
        for length in (0, 1, values.size - 1):
            if name == "word":
                expected = "chunk"
            else:
                expected = f"its columns differ in length: .*{name} {length}"
            with pytest.raises(WireError, match=expected):
                typed(decode_feed(message(topic, columns_of(topic) | {name: values[:length]})))


BAD_NUMBERS = [
    ("match mismatch near ltb delta read", "read", 3),
    ("match mismatch near ltb delta read", "read", 2**32 - 1),
    ("match mismatch near delta", "start", -1),
    ("match mismatch", "start", 1),
    ("match mismatch near ltb", "end", -(2**63)),
    ("match mismatch", "windows", 0),
    ("match mismatch", "windows", -(2**63)),
    ("match near", "target", 3),
    ("read", "best_target", 3),
    ("read", "best_target", -2),
    ("near", "start", 14),
    ("near", "distance", 3),
    ("near", "strand", 2),
    ("near", "best", 2),
    ("near delta", "code", 4**11),
    ("near delta", "code", 2**64 - 1),
    ("word", "chunk_words", -1),
    ("word", "chunk_words", 2),
    ("word", "chunk_words", 0),
    ("word", "chunk_words", 2**62),
    ("read", "length", -1),
    ("read", "length", 2**63 - 1),
    ("read", "windows", 4),
    ("read", "matches", -3),
    ("read", "mismatches", 1),
    ("read", "skipped", -(2**63)),
]


@pytest.mark.parametrize(
    ("topic", "name", "value"),
    [(topic, name, value) for topics, name, value in BAD_NUMBERS for topic in topics.split()],
)
def test_numbers_that_cannot_be(topic, name, value):
    columns = columns_of(topic)
    columns[name][0] = value
    assert refused(message(topic, columns)).startswith(f"topic '{topic}', record 17: ")


def test_a_key_that_is_no_string():
    frames = message("match")
    header = msgpack.unpackb(frames[1]) | {"later": {b"k": 1}}
    with pytest.raises(WireError, match="a map key is not a string"):
        decode_feed(seal([frames[0], msgpack.packb(header), *frames[2:-1]]))


def test_a_channel_that_cannot_be():
    columns = columns_of("read") | {"channel": np.array([5, -2, 1], np.int32)}
    assert "row 2 has inconsistent values" in refused(message("read", columns))


def test_targets_among_several_labels():
    fields = {
        "targets": [[9, "x"], [4, "phage"], [6, "y;z"]],
        "sets": [[1, [4]], [4, [4, 6]], [2, [9], 1]],
    }
    columns = columns_of("match")
    frames = message("match", columns, **fields)
    assert [row["target"] for row in rows_of(frames)] == ["phage;y;z", None]
    assert typed(decode_feed(frames)).sets == {1: ("phage",), 4: ("phage", "y;z"), 2: ("x",)}
    columns["target"][1] = 5
    assert refused(message("match", columns, **fields)).endswith(
        "row 2 of target is 5, which is not named"
    )


def test_a_large_set_is_shown_with_its_first_targets():
    names = [f"t{i}" for i in range(9)]
    for count, label in ((8, ";".join(names[:8])), (9, ";".join(names[:8]) + ";...")):
        fields = {
            "targets": [[i, name] for i, name in enumerate(names[:count])],
            "sets": [[4, list(range(count)), 5_000]],
        }
        assert rows_of(message("match", **fields))[0]["target"] == label


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"k": 0}, "field 'k' must be an integer, 1 to 31"),
        ({"k": 1 << 40}, "field 'k' must be an integer, 1 to 31"),
        ({"k": None}, "field 'k' must be"),
        ({"batch": -1}, "field 'batch' must be"),
        ({"version": 1.0}, "field 'version' must be"),
        ({"producer_seq": True}, "field 'producer_seq' must be"),
        ({"producer": "a\nb"}, "field 'producer' must be"),
        ({"producer": 3}, "field 'producer' must be"),
        ({"targets": [[4, 5]]}, "field 'targets' must hold"),
        ({"targets": [["4", "phage"]]}, "field 'targets' must hold"),
        ({"targets": 4}, "field 'targets' must hold"),
        ({"targets": {}, "sets": []}, "field 'targets' must hold"),
        ({"targets": "", "sets": []}, "field 'targets' must hold"),
        ({"sets": b""}, "field 'sets' must hold"),
        ({"sets": [[4, b"\x04"]]}, "field 'sets' must hold"),
        ({"sets": [[4, {}]]}, "field 'sets' must hold"),
        ({"sets": [[4, [4.0]]]}, "field 'sets' must hold"),
        ({"v": 2.0}, "not protocol version 2"),
        ({"targets": [[[4], "phage"]]}, "field 'targets' must hold"),
        ({"targets": []}, "field 'sets' must hold"),
        ({"sets": [[NO_TARGET, [4]]]}, "is named, but is reserved for none"),
        ({"sets": [[4, [5]]]}, "field 'sets' must hold"),
        ({"sets": [[4, 4]]}, "field 'sets' must hold"),
        ({"sets": [[4]]}, "field 'sets' must hold"),
        ({"sets": [["4", [4]]]}, "field 'sets' must hold"),
        ({"sets": [[4, [[4]]]]}, "field 'sets' must hold"),
        ({"sets": 4}, "field 'sets' must hold"),
        ({"sets": []}, "row 1 of target is 4, which is not named"),
        ({"stream": 5}, "field 'stream' must have 16 characters"),
        ({"stream": "5"}, "field 'stream' must have 16 characters"),
        ({"prev": 17}, "the record before it is 17, not an earlier one"),
        ({"topic": "mismatch."}, "the header names another topic"),
        ({"names": ["a", "b\x1b", "c"]}, "read 2: the name holds U+001B, which is not printable"),
        ({"names": ["a", 2, "c"]}, "the frame of names must be an array of strings"),
        ({"names": {"a": 1, "b": 2}}, "the frame of names must be an array of strings"),
        ({"names": ["a", "b"]}, "row 2 has inconsistent values"),
    ],
)
def test_fields_that_cannot_be(fields, said):
    told = refused(message("match", **fields))
    assert told.startswith("topic 'match', record 17: ") or "v" in fields
    assert said in told


@pytest.mark.parametrize(
    ("topic", "fields"),
    [
        ("near", {"distance": -1}),
        ("ltb", {"distance": "2"}),
        ("delta", {"seeded": 3}),
        ("word", {"error": 3}),
    ],
)
def test_fields_of_a_topic_that_cannot_be(topic, fields):
    assert f"topic '{topic}', record 17" in refused(message(topic, **fields))


NOVELTY = {"columns": ["reads", "bases", "kmers", "new"], "version": 1}
ENOUGH = {"columns": ["barcode", "group", "target", "reads", "breadth", "depth"], "version": 1}
ROW = ["t", 1, 0.5, 2]


@pytest.mark.parametrize(
    ("topic", "fields"),
    [
        *(("beat", {"heads": {"read.": at}, "totals": {}}) for at in (-1, None, "3", 1.5)),
        ("beat", {"heads": [["read.", True]], "totals": {}}),
        ("beat", {"heads": {"read.": 1}, "totals": {"reads": "many"}}),
        ("beat", {"heads": {"read.": 1}, "totals": {"reads": [1]}}),
        ("beat", {"heads": {"read.": 1}}),
        ("beat", {"heads": {}, "totals": {}, "state": 3}),
        ("status", {"status": ["running"]}),
        ("status", {"status": {"state": "running"}}),
        ("status", {"status": {"state": None, "totals": {}}}),
        ("status", {"status": {"state": "running", "totals": {}}, "heads": None}),
        ("novelty", {"columns": ["reads", "bases"], "rows": []}),
        *(("novelty", NOVELTY | {"rows": [row]}) for row in ([1, 2, 3], [1, 2, 3, 0.5], "four")),
        *(("enough", ENOUGH | {"rows": [row]}) for row in ([*"bgt", 1, "0.5", 2], [1, "g", *ROW])),
    ],
)
def test_notices_that_cannot_be(topic, fields):
    header = {"v": 2, "topic": f"{topic}.", "epoch": 5, "at": 17, "time": 9}
    header |= {"stream": "00112233445566ff", "state": "running", "heads": {}}
    refusal = refused(encode_notice(topic, header | fields))
    assert refusal.startswith(f"topic '{topic}', record 17: ")
    assert "field" in refusal


TARGETS, SETS = [[4, "phage"]], [[4, [4]]]
PARTS = {
    "match.": {"sets": SETS, "targets": TARGETS},
    "mismatch.": {},
    "near.": {"sets": SETS, "targets": TARGETS, "distance": 2},
    "ltb.": {"distance": 2},
    "read.": {"targets": TARGETS},
}
COLUMNS = {
    wire + name: values
    for wire in PARTS
    for name, values in columns_of(wire.removesuffix(".")).items()
}


def upgrade(columns=COLUMNS, **fields):
    """The frames of an upgrade with the rows that messages on these topics have."""
    header = HEADER | {"topic": "upgrade.", "parts": PARTS, "totals": {"matches": -2}} | fields
    return [bytes(f) for f in encode_feed("upgrade", header, msgpack.packb(NAMES), columns)]


def read(frames):
    return typed(decode_feed(frames))


def refused_upgrade(frames):
    with pytest.raises(WireError) as caught:
        read(frames)
    return str(caught.value)


def test_the_parts_of_an_upgrade_are_as_the_messages_of_their_topics():
    found = read(upgrade())
    assert isinstance(found, Upgrade)
    assert found.totals == {"matches": -2}
    rows = [row for part in tables(found) for row in part.records()]
    assert [f"{topic}." for topic in found.parts] == list(PARTS)
    for topic, part in found.parts.items():
        alone = read(message(topic))
        assert type(part) is type(alone)
        for name in KINDS[topic]:
            assert np.array_equal(getattr(part, name), getattr(alone, name))
        (table,) = tables(alone)
        own = [row for row in rows if row["table"] == topic]
        added = {"topic": "upgrade", "table": topic}
        assert own == [row | added for row in table.records()]


def test_additions_to_an_upgrade_are_ignored():
    more = COLUMNS | {"later.read": COLUMNS["read.read"], "read.later": COLUMNS["read.read"]}
    found = read(upgrade(more, parts=PARTS | {"later.": {"a": 1}}, totals={"later": 1}))
    assert [f"{topic}." for topic in found.parts] == list(PARTS)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"parts": 3}, "field 'parts' must be a map"),
        ({"parts": PARTS | {"read.": 3}}, "field 'parts' must be a map of maps"),
        ({"parts": PARTS | {"match.": {}}}, "row 1 of target is 4, which is not named"),
        ({"parts": PARTS | {"near.": PARTS["match."]}}, "field 'distance' must be an integer"),
        ({"totals": None}, "field 'totals' must be a map"),
        ({"totals": {"matches": 1.5}}, "field 'totals' must be a map of integers"),
        ({"prev": 17}, "the record before it is 17"),
    ],
)
def test_an_upgrade_that_cannot_be(fields, said):
    assert said in refused_upgrade(upgrade(**fields))


def test_columns_of_an_upgrade_are_checked_by_part():
    for name in COLUMNS:
        lacking = {other: values for other, values in COLUMNS.items() if other != name}
        assert "its columns are " in refused_upgrade(upgrade(lacking))
    assert "row 1 has inconsistent values" in refused_upgrade(
        upgrade(COLUMNS | {"mismatch.read": np.array([3, 2], np.uint32)})
    )


def test_a_retraction_and_the_end_of_a_revision():
    found = read(message("retract", {"read": np.array([0, 2], np.uint32)}, version=5))
    assert isinstance(found, Retract)
    (table,) = tables(found)
    row = {"topic": "retract", "version_before": 1, "version": 5, "batch": 0}
    assert table.records() == [row | {"read": name} for name in ("a", "c")]
    assert "inconsistent" in refused_upgrade(message("retract", {"read": np.array([3], np.uint32)}))
    header = HEADER | {"topic": "settled.", "version": 5, "from_batch": 7}
    found = read(encode_notice("settled", header))
    assert (type(found), found.version, found.from_batch) == (Settled, 5, 7)
    (table,) = tables(found)
    assert table.records() == [{"topic": "settled", "version": 5, "from_batch": 7}]
    for wrong in ({"version": -1}, {"from_batch": "7"}, {"prev": 17}):
        assert refused_upgrade(encode_notice("settled", header | wrong))


class RowFold:
    """What rows come to, by batch and name of the read; rows come with their record."""

    def __init__(self):
        self.said, self.floor = {}, {}

    def take(self, at, row):
        if row["topic"] == "settled":
            return
        key = row["batch"], row["read"]
        if row["topic"] == "retract":
            assert row["version_before"] < row["version"]
            self.floor[key] = at
            self.said[key] = [one for one in self.said.get(key, []) if one[0] >= at]
        elif at >= self.floor.get(key, 0):
            kind = row.get("table", row["topic"])
            names = ("start", "end", "windows", "target")
            if kind == "read":
                names = "length", "windows", "matches", "mismatches", "skipped", "best_target"
            self.said.setdefault(key, []).append((at, kind, *(row[name] for name in names)))

    def answers(self):
        return {key: sorted(row[1:] for row in rows) for key, rows in self.said.items()}


def expected(batches, sources):
    """As ``RowFold.answers``, from the definition."""
    want = {}
    for batch, said in answers(batches, sources).items():
        for (name, _), rows in zip(batches[batch], said, strict=True):
            found = [("match", *row[:3], ";".join(row[3])) for row in rows.get("match", [])]
            found += [("mismatch", *row, None) for row in rows.get("mismatch", [])]
            want[batch, name] = sorted([*found, *(("read", *row) for row in rows["read"])])
    return want


@pytest.mark.whole
def test_reload_and_watch_on_the_command_line(tmp_path, streamer, monkeypatch):
    rng = random.Random(4)
    before, after = sources_of(rng), sources_of(rng)
    write_fasta(tmp_path / "ref.fa", before)
    path, batches = configured(tmp_path), batches_of(rng, 12)
    with running(path) as daemon:
        with Producer(daemon.endpoints["ingest"], name="lab") as producer:
            for reads in batches:
                producer.send(reads)
            producer.flush(matched=True, timeout=DEADLINE)
        write_fasta(tmp_path / "ref.fa", after)
        code, out, err = streamer("reload", "--config", path, "--wait")
        assert (code, err) == (0, "")
        first, last = out.split(": ")
        assert first == "version 1 to 2"
        assert last.endswith(" k-mers, 12 batches to be matched again\n")
        assert out.count("\n") == 1
        asked = ["--topic=match", "--topic=mismatch", "--topic=read", "--topic=retract"]
        asked += ["--topic=upgrade", "--topic=settled", "--from-cursor", tmp_path / "place"]
        watch = ["watch", "--config", path, *asked, "--format=jsonl", "--quiet"]
        rows = []
        while not rows or rows[-1]["topic"] != "settled":
            code, out, err = streamer(*watch, "--for", "1")
            assert (code, err) == (0, "")
            rows += [json.loads(line) for line in out.splitlines()]
        fold = RowFold()
        for row in rows:
            # there is one revision
            fold.take(2 if row["topic"] in ("retract", "upgrade") else 1, row)
        assert fold.answers() == expected(batches, after)
        assert rows[-1] == {"topic": "settled", "version": 2, "from_batch": 0}
        code, out, _ = streamer("reload", "--to", daemon.endpoints["control"])
        assert (code, out) == (0, "version 2 stays: its sources have not changed\n")
        code, out, _ = streamer("status", "--config", path)
        assert "revision" in out
        (tmp_path / "ref.fa").write_text(">one\nACGT!\n")
        code, out, err = streamer("reload", "--config", path)
        # beside the log of the daemon in this process
        (said,) = [line for line in err.splitlines() if line.startswith("streamer")]
        assert (code, out) == (1, "")
        assert "refused (sources): " in said
        assert "ref.fa" in said
    monkeypatch.setitem(Control.__init__.__kwdefaults__, "answer_seconds", 0.3)
    code, out, err = streamer("reload", "--to", f"ipc://{tmp_path}/nobody")
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert "no answer within 0.3 s" in err


def test_one_batch_is_no_batches(streamer, monkeypatch):
    said = {"version_before": 1, "version": 2, "kmers": 1, "batches": 1}
    monkeypatch.setattr("streamer.client.control.Control.reload", lambda control: said)
    assert streamer("reload", "--to", "ipc:///nowhere") == (
        0,
        "version 1 to 2: 1 k-mer, 1 batch to be matched again\n",
        "",
    )
