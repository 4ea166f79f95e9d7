"""Messages of the feed as tables for people and programs: names instead of indices."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl
from numpy.typing import NDArray

from streamer.client.messages import (
    Automaton,
    BatchMessage,
    Beat,
    Intervals,
    Near,
    NewKmers,
    ReadSummaries,
    Status,
)
from streamer.matching.report_tables import STRAND_NAMES, bit_lists
from streamer.protocol.schema import NO_TARGET
from trie.codes import decode_kmers

_AT_ONCE = 1 << 16
_INTERVALS = ("read", "start", "end", "event", "windows", "target", "batch")
_TOTALS = (
    "state",
    "reads",
    "bases",
    "windows",
    "matches",
    "mismatches",
    "reads_on_target",
    "new_kmers",
    "bases_per_second",
)
_COLUMNS: dict[str, tuple[str, ...]] = {
    "match": _INTERVALS,
    "mismatch": _INTERVALS,
    "near": (
        "read",
        "start",
        "end",
        "distance",
        "strand",
        "kmer",
        "target",
        "best",
        "snapshot",
        "batch",
    ),
    "ltb": ("read", "end", "distances", "depths", "snapshot", "batch"),
    "delta": ("read", "start", "end", "kmer", "batch"),
    "read": (
        "read",
        "length",
        "windows",
        "matches",
        "mismatches",
        "skipped",
        "best_target",
        "batch",
    ),
    "word": ("word", "chunk_base", "chunk_version", "batch"),
    "beat": _TOTALS,
    "status": _TOTALS,
}


def columns_of(topics: Sequence[str]) -> list[str]:
    """The columns of rows of these topics together: ``topic`` first, ``batch`` last."""
    names = dict.fromkeys(name for topic in topics for name in _COLUMNS[topic])
    last = ["batch"] if names.pop("batch", 0) is None else []
    return ["topic", *names, *last]


def pad(table: pl.DataFrame, columns: Sequence[str]) -> pl.DataFrame:
    """The table with all of ``columns``, null where it has none."""
    held = set(table.columns)
    return table.select(
        [pl.col(name) if name in held else pl.lit(None).alias(name) for name in columns]
    )


def table(message: BatchMessage | Beat | Status) -> pl.DataFrame:
    """The rows of a message: ``topic``, then the columns of its topic."""
    topic = message.stamp.topic
    if isinstance(message, Beat | Status):
        totals = message.totals if isinstance(message, Beat) else message.status["totals"]
        state = message.state if isinstance(message, Status) else None
        row = {"topic": topic, "state": state} | {n: totals.get(n) for n in _TOTALS[1:]}
        return pl.DataFrame([row], schema_overrides={"state": pl.String})
    origin = message.origin
    if isinstance(message, Intervals):
        nothing = np.full(message.read.size, NO_TARGET, dtype=np.uint32)
        target = nothing if message.target is None else message.target
        columns: dict[str, object] = {
            "read": _names(origin.names, message.read),
            "start": message.start,
            "end": message.end,
            "event": [topic] * message.read.size,
            "windows": message.windows,
            "target": _labels(message.labels, target),
        }
    elif isinstance(message, Near):
        columns = {
            "read": _names(origin.names, message.read),
            "start": message.start,
            "end": message.end,
            "distance": message.distance,
            "strand": STRAND_NAMES.gather(message.strand),
            "kmer": _kmers(message.code, origin.k),
            "target": _labels(message.labels, message.target),
            "best": message.best,
            "snapshot": message.snapshot,
        }
    elif isinstance(message, Automaton):
        columns = {
            "read": _names(origin.names, message.read),
            "end": message.end,
            "distances": bit_lists(message.distances),
            "depths": bit_lists(message.depths),
            "snapshot": message.snapshot,
        }
    elif isinstance(message, NewKmers):
        columns = {
            "read": _names(origin.names, message.read),
            "start": message.start,
            "end": message.start + origin.k,
            "kmer": _kmers(message.code, origin.k),
        }
    elif isinstance(message, ReadSummaries):
        columns = {
            "read": _names(origin.names, message.read),
            "length": message.length,
            "windows": message.windows,
            "matches": message.matches,
            "mismatches": message.mismatches,
            "skipped": message.skipped,
            "best_target": _labels(message.labels, message.best_target),
        }
    else:
        columns = {
            "word": message.word,
            "chunk_base": np.repeat(message.chunk_base, message.chunk_words),
            "chunk_version": np.repeat(message.chunk_version, message.chunk_words),
        }
    found = pl.DataFrame(columns)
    return found.select(
        pl.lit(topic).alias("topic"), pl.all(), pl.lit(origin.batch, dtype=pl.Int64).alias("batch")
    )


def _kmers(codes: NDArray[np.uint64], k: int) -> pl.Series:
    """The letters of codes, so many at a time: each takes 16 bytes a letter on its way."""
    parts = range(0, codes.size, _AT_ONCE)
    shown = [pl.Series(decode_kmers(codes[i : i + _AT_ONCE], k), dtype=pl.String) for i in parts]
    return pl.concat(shown) if shown else pl.Series([], dtype=pl.String)


def _names(names: Sequence[str], index: NDArray[np.uint32]) -> pl.Series:
    return pl.Series(list(names), dtype=pl.String).gather(pl.Series(index))


def _labels(labels: dict[int, str], index: NDArray[np.uint32] | NDArray[np.int32]) -> pl.Series:
    present, where = np.unique(index, return_inverse=True)
    shown = pl.Series([labels.get(int(i)) for i in present], dtype=pl.String)
    return shown.gather(pl.Series(where.astype(np.int64)))
