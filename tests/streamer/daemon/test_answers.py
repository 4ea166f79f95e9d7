"""Answers: compared and replaced read by read, as plain lists of rows would be."""

from __future__ import annotations

import random

import numpy as np
import pytest

from streamer.daemon.kept_batches import PARTS, Answers, chosen
from streamer.daemon.stored_messages import Content
from streamer.protocol.header import raw
from streamer.protocol.schema import TOPICS

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
    return [(topic, content_of(rng, topic, rows)) for topic, rows in said.items() if rows]


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
        sent = [(t, chosen(t, c, changed)) for t, c in contents_of(rng, other)]
        for topic, content in sent:
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
