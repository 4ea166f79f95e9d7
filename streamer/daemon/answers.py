"""The answers about the reads of a batch: compared, and replaced read by read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamer.daemon.publish import Content
from streamer.protocol.header import Header, raw
from streamer.protocol.schema import TOPICS

PARTS = TOPICS["upgrade"].parts
"""The topics whose rows are answers."""

# the column of a row that names its targets; and columns that are not part of the answer: the
# index of the read and the version of the snapshot
_TARGETS = {"match": "target", "near": "target", "read": "best_target"}
_IGNORED = ("read", "snapshot")

Meanings = dict[object, int]
"""A number for each set of targets, by their names, and for each target."""

Rows = dict[str, NDArray[Any]]


class Answers:
    """Rows by topic, in order of their reads; targets are numbers of ``meanings``, -1 for none."""

    def __init__(self, contents: Iterable[tuple[str, Content]], meanings: Meanings) -> None:
        found = dict(contents)
        self.rows = {topic: _rows(topic, found.get(topic), meanings) for topic in PARTS}

    def replace(self, others: Answers, reads: NDArray[np.bool_]) -> None:
        """Replace the rows of these reads (bool[reads]) by those of ``others``."""
        for topic, rows in self.rows.items():
            kept = ~reads[rows["read"]]
            both = {c: np.concatenate((v[kept], others.rows[topic][c])) for c, v in rows.items()}
            order = np.argsort(both["read"], kind="stable")
            self.rows[topic] = {column: values[order] for column, values in both.items()}

    def changed(self, others: Answers, reads: int) -> NDArray[np.bool_]:
        """Which of ``reads`` reads have different rows in ``others`` (bool[reads])."""
        differ = np.zeros(reads, np.bool_)
        for topic, rows in self.rows.items():
            theirs = others.rows[topic]
            counts = [np.bincount(some["read"], minlength=reads) for some in (rows, theirs)]
            differ |= counts[0] != counts[1]
            here, there = ~differ[rows["read"]], ~differ[theirs["read"]]
            index = rows["read"][here]
            for column in rows.keys() - {*_IGNORED}:
                differ[index[rows[column][here] != theirs[column][there]]] = True
        return differ

    def totals(self, reads: NDArray[np.bool_]) -> dict[str, int]:
        """What these reads add to the totals."""
        rows = self.rows["read"]
        chosen = reads[rows["read"]]
        sums = {name: int(rows[name][chosen].sum()) for name in ("matches", "mismatches")}
        return sums | {"reads_on_target": int((rows["best_target"][chosen] >= 0).sum())}


def chosen(topic: str, content: Content, reads: NDArray[np.bool_]) -> Content:
    """The part of a message's content about these reads."""
    columns = _columns(content)
    kept = reads[columns["read"]]
    columns = {name: values[kept] for name, values in columns.items()}
    described = [(name, kind, int(kept.sum())) for name, kind, _ in content.described]
    frames = [raw(values) for values in columns.values()]
    return Content(_chosen_fields(topic, content.fields, columns), described, frames)


def _chosen_fields(topic: str, fields: Header, columns: Mapping[str, NDArray[Any]]) -> Header:
    """The fields, reduced to the sets and targets that a row names."""
    column = _TARGETS.get(topic)
    if column is None:
        return fields
    named = set(np.unique(columns[column]).tolist())
    fields = dict(fields)
    if "sets" in fields:
        fields["sets"] = [one for one in fields["sets"] if one[0] in named]
        named = {target for _, targets, *_ in fields["sets"] for target in targets}
    fields["targets"] = [one for one in fields["targets"] if one[0] in named]
    return fields


def _columns(content: Content) -> Rows:
    described = zip(content.described, content.frames, strict=True)
    return {name: np.frombuffer(frame, kind) for (name, kind, _), frame in described}


def _rows(topic: str, content: Content | None, meanings: Meanings) -> Rows:
    if content is None:
        return {c.name: np.zeros(0, _kind(topic, c.name, c.dtype)) for c in TOPICS[topic].columns}
    found = _columns(content)
    rows = {column.name: found[column.name] for column in TOPICS[topic].columns}
    if (column := _TARGETS.get(topic)) is not None:
        rows[column] = _meant(rows[column], content.fields, meanings)
    return rows


def _kind(topic: str, column: str, dtype: np.dtype[Any]) -> np.dtype[Any]:
    return np.dtype(np.int64) if column == _TARGETS.get(topic) else dtype


def _meant(numbers: NDArray[Any], fields: Header, meanings: Meanings) -> NDArray[np.int64]:
    """Translate a message's numbers of sets or targets to numbers of ``meanings``."""
    names = dict(fields["targets"])
    meant: dict[int, object] = names
    if "sets" in fields:
        # a large set is known by its first targets and its size
        meant = {n: (*map(names.get, some), *more) for n, some, *more in fields["sets"]}
    present, at = np.unique(numbers, return_inverse=True)
    found = [
        meanings.setdefault(meant[number], len(meanings)) if number in meant else -1
        for number in present.tolist()
    ]
    return np.array(found, np.int64)[at] if found else np.zeros(0, np.int64)
