"""Revisions as clients see them: typed, as rows, healed, on the command line."""

from __future__ import annotations

import json
import random

import msgpack
import numpy as np
import pytest

from streamer.client import (
    Control,
    Producer,
    Retract,
    Settled,
    Upgrade,
)
from streamer.client.message_tables import tables
from streamer.client.messages import typed
from streamer.protocol.header import WireError
from streamer.protocol.payloads import decode_feed, encode_feed, encode_notice
from tests.daemon_kit import running, write_fasta
from tests.reload_kit import answers, batches_of, configured, sources_of
from tests.streamer.client.test_feed_damage import HEADER, NAMES, ROWS, columns_of, message
from tests.waiting import DEADLINE

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


def refused(frames):
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
        for name in ROWS[topic]:
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
    assert said in refused(upgrade(**fields))


def test_columns_of_an_upgrade_are_checked_by_part():
    for name in COLUMNS:
        lacking = {other: values for other, values in COLUMNS.items() if other != name}
        assert "its columns are " in refused(upgrade(lacking))
    assert "row 1 has inconsistent values" in refused(
        upgrade(COLUMNS | {"mismatch.read": np.array([3, 2], np.uint32)})
    )


def test_a_retraction_and_the_end_of_a_revision():
    found = read(message("retract", {"read": np.array([0, 2], np.uint32)}, version=5))
    assert isinstance(found, Retract)
    (table,) = tables(found)
    row = {"topic": "retract", "version_before": 1, "version": 5, "batch": 0}
    assert table.records() == [row | {"read": name} for name in ("a", "c")]
    assert "inconsistent" in refused(message("retract", {"read": np.array([3], np.uint32)}))
    header = HEADER | {"topic": "settled.", "version": 5, "from_batch": 7}
    found = read(encode_notice("settled", header))
    assert (type(found), found.version, found.from_batch) == (Settled, 5, 7)
    (table,) = tables(found)
    assert table.records() == [{"topic": "settled", "version": 5, "from_batch": 7}]
    for wrong in ({"version": -1}, {"from_batch": "7"}, {"prev": 17}):
        assert refused(encode_notice("settled", header | wrong))


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
