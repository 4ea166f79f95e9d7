"""Messages of the feed as tables for people and programs: names instead of indices."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamer.client import messages
from streamer.matching.reports import STRAND_NAMES, Ratio, bit_lists
from streamer.output.text_table import Column, Labels, Lookup, Table, distinct, same, texts
from streamer.protocol.schema import ACTIONS, BATCH_TOPICS, TOPICS
from trie.codes import decode_kmers

_AT_ONCE = 1 << 16
_ACTION_NAMES = Labels(ACTIONS)


def columns_of(topics: Sequence[str]) -> list[str]:
    """The columns of rows of these topics together: ``topic`` first, ``batch`` last."""
    names = dict.fromkeys(name for topic in topics for name in TOPICS[topic].shown.split())
    last = ["batch"] if BATCH_TOPICS.keys() & set(topics) else []
    return ["topic", *names, *last]


def rows_table(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> Table:
    """Rows of counts, as ``streamer match --report targets`` writes them."""
    values = list(zip(*rows, strict=True)) or [()] * len(columns)
    made = {}
    for name, column in zip(columns, values, strict=True):
        rounded = name in ("breadth", "depth")
        made[name] = texts([Ratio(v) if rounded and v is not None else v for v in column])
    return Table(made)


def table(message: messages.Known) -> Table:
    """The rows of a message other than an upgrade: ``topic``, then the columns of its topic."""
    topic = TOPICS[message.stamp.topic]
    shown = topic.shown.split()
    if isinstance(message, messages.BatchMessage):
        rows = Table({name: _column(name, message) for name in shown})
        first = {"topic": same(topic.name, rows.rows)}
        return Table({**first, **rows.columns, "batch": same(message.origin.batch, rows.rows)})
    if isinstance(message, messages.TallyRows):
        rows = rows_table(shown, message.rows)
        return Table({"topic": same(topic.name, rows.rows), **rows.columns})
    if isinstance(message, messages.Beat | messages.Status):
        totals = message.totals if isinstance(message, messages.Beat) else message.status["totals"]
        state = message.state if isinstance(message, messages.Status) else None
        row = {"topic": topic.name, "state": state} | {n: totals.get(n) for n in shown[1:]}
    else:
        row = {"topic": topic.name} | {name: getattr(message, name) for name in shown}
    return Table({name: texts([value]) for name, value in row.items()})


def tables(message: messages.Known) -> Iterator[Table]:
    """The rows of any message; an upgrade has a table for each of its parts."""
    if not isinstance(message, messages.Upgrade):
        yield table(message)
        return
    for topic, part in message.parts.items():
        rows = table(part)
        first = {"topic": same("upgrade", rows.rows), "table": same(topic, rows.rows)}
        yield Table(first | {n: column for n, column in rows.columns.items() if n != "topic"})


def _column(name: str, message: Any) -> Column:
    made = _MADE.get(name)
    column: Column = getattr(message, name) if made is None else made(message)
    return column


_MADE: dict[str, Callable[[Any], Column]] = {
    "read": lambda message: Labels(message.origin.names).gather(message.read),
    "end": lambda message: (
        message.start + message.origin.k if isinstance(message, messages.NewKmers) else message.end
    ),
    "event": lambda message: same(message.stamp.topic, message.read.size),
    "version_before": lambda message: same(message.origin.version_before, message.read.size),
    "version": lambda message: same(message.origin.version, message.read.size),
    "target": lambda message: _labels(message.labels, message.target, message.read.size),
    "best_target": lambda message: _labels(message.labels, message.best_target, message.read.size),
    "channel": lambda message: distinct(
        message.channel, lambda present: [n if n >= 0 else None for n in present.tolist()]
    ),
    "barcode": lambda message: _labels(message.barcodes, message.barcode, message.read.size),
    "action": lambda message: _ACTION_NAMES.gather(message.action),
    "strand": lambda message: STRAND_NAMES.gather(message.strand),
    "kmer": lambda message: _kmers(message.code, message.origin.k),
    "distances": lambda message: bit_lists(message.distances),
    "depths": lambda message: bit_lists(message.depths),
    "chunk_base": lambda message: np.repeat(message.chunk_base, message.chunk_words),
    "chunk_version": lambda message: np.repeat(message.chunk_version, message.chunk_words),
}
"""Columns that differ from the message's array of the same name."""


def _kmers(codes: NDArray[np.uint64], k: int) -> Lookup:
    """The letters of codes, decoded in parts, since decoding takes 16 bytes a letter."""
    parts = range(0, codes.size, _AT_ONCE)
    return texts([kmer for i in parts for kmer in decode_kmers(codes[i : i + _AT_ONCE], k)])


def _labels(labels: dict[int, str], targets: NDArray[Any] | None, rows: int) -> Lookup:
    if targets is None:
        return same(None, rows)
    return distinct(targets, lambda present: [labels.get(int(target)) for target in present])
