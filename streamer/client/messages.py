"""The messages of the feed as types, checked so that readers can rely on every row.

A checksum shows that a message arrived as it was sent, not that it follows docs/protocol.md: a
short column, an index without a name or a k-mer of more than k bases would lead to wrong rows, or
to an error far from its cause. The schema has the columns of each topic and their limits; here is
what several columns of a row must have in common.
"""

from bisect import bisect_left
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamer.protocol import schema
from streamer.protocol.payloads import Columns, FeedMessage, described
from streamer.protocol.wire import Header, WireError, integer, integers, malformed, text
from trie.codes import MAX_K
from trie.cpu.jit import njit

Sets = dict[int, tuple[str, ...]]
"""By number of a set, the names of its targets."""


_NONE: tuple[object, object, dict[int, str], Sets] = ((), (), {}, {})


class Named:
    """Caches what the last messages named, since the next one of a topic often names the same."""

    def __init__(self) -> None:
        self._last = dict.fromkeys(schema.BATCH_TOPICS, _NONE)

    def of(self, topic: str, header: Header) -> tuple[dict[int, str], Sets]:
        """The names of targets by number, and those in each set by its number."""
        targets, sets = header.get("targets", ()), header.get("sets", ())
        last_targets, last_sets, names, members = self._last[topic]
        if targets != last_targets or sets != last_sets:
            names = _named_in(header, "targets")
            members = _sets(header, names)
            # assigned in one step, as other threads may read it
            self._last[topic] = targets, sets, names, members
        return names, members


NAMED = Named()
"""Shared by all, since it is only a cache."""


def _named_in(header: Header, field: str) -> dict[int, str]:
    """The names in a field, an array of [number, name], by number."""
    entries = header.get(field, [])
    try:
        _check_arrays(entries)
        # a later daemon may send more after the name
        names = {number: name for number, name, *_ in entries}
    except (TypeError, ValueError):
        names = {None: None}
    kinds = set(map(type, names)), set(map(type, names.values()))
    if names and (kinds != ({int}, {str}) or not 0 <= min(names) <= max(names) <= schema.NO_TARGET):
        raise malformed(f"field '{field}' must hold numbers and names")
    return names


def _sets(header: Header, names: dict[int, str]) -> Sets:
    """By number of a set, the names of its targets."""
    sets: Sets = {}
    entries = header.get("sets", [])
    try:
        _check_arrays(entries)
        parts = [entry[1] for entry in entries]  # a later daemon may send more after the targets
        _check_arrays(parts)
        _check_arrays([*chain.from_iterable(parts)], of=int)
        sets = {entry[0]: tuple([names[number] for number in entry[1]]) for entry in entries}
    except (TypeError, IndexError, KeyError):
        sets = {-1: ()}
    if sets and (
        set(map(type, sets)) != {int} or not 0 <= min(sets) <= max(sets) <= schema.NO_TARGET
    ):
        raise malformed("field 'sets' must hold numbers and arrays of named targets")
    return sets


def _check_arrays(entries: object, of: type = list) -> None:
    """TypeError unless it is an array of arrays, or of another type."""
    if not isinstance(entries, list) or not set(map(type, entries)) <= {of}:
        raise TypeError


@dataclass(frozen=True, slots=True)
class Stamp:
    """The fields that every message has.

    stream: identifies the stream of records. epoch: identifies the run of the daemon. at: number of
    the record that it is about; for a Beat or Status, the last one published. previous: the last
    record before ``at`` with a message on this topic, 0 for none and for a Beat or Status. time:
    nanoseconds since 1970. head: all header fields as sent.
    """

    topic: str
    stream: str
    epoch: int
    at: int
    previous: int
    time: int
    head: Header


@dataclass(frozen=True, slots=True)
class Origin:
    """The batch that a message is about.

    batch: number in the order of acceptance, from 0. base: stream position of its first symbol.
    version_before, version: those of the dictionary before and after it. names: those of all its
    reads; every column ``read`` is an index into them.
    """

    batch: int
    base: int
    producer: str
    producer_epoch: int
    producer_sequence: int
    version_before: int
    version: int
    k: int
    names: Sequence[str]


@dataclass(frozen=True, slots=True)
class RecordMessage:
    """A message about a record of the stream."""

    stamp: Stamp


@dataclass(frozen=True, slots=True)
class BatchMessage(RecordMessage):
    """A message about a batch.

    The columns of its topic are its attributes, as ``message.read``: arrays of one length, unless
    noted. docs/protocol.md has their types, units and meanings.
    """

    origin: Origin
    columns: Columns

    def __getattr__(self, name: str) -> NDArray[Any]:
        try:
            return self.columns[name]
        except KeyError:
            raise AttributeError(f"{type(self).__name__} has no column '{name}'") from None


@dataclass(frozen=True, slots=True)
class _MessageWithSets(BatchMessage):
    sets: Sets

    @property
    def labels(self) -> dict[int, str]:
        """By set, the names of its targets joined by ``;``, at most 8 and then ``...``."""
        return {
            number: ";".join(schema.shown_targets(names)) for number, names in self.sets.items()
        }


@dataclass(frozen=True, slots=True)
class Intervals(_MessageWithSets):
    """``match`` and ``mismatch``: maximal runs of windows with one event and one target set.

    sets: the names of the targets in each target set, by its number, which ``target`` holds.
    """

    @property
    def target(self) -> NDArray[np.uint32] | None:
        """The target set of each run; None for ``mismatch``."""
        return self.columns.get("target")


@dataclass(frozen=True, slots=True)
class Near(_MessageWithSets):
    """``near``: for every end with a k-mer within ``limit`` edits, the nearest one.

    sets: as in Intervals.
    """

    limit: int


@dataclass(frozen=True, slots=True)
class Automaton(BatchMessage):
    """``ltb``: the bitmaps (thesis Fig. 31) of every end that has any, within ``limit`` edits."""

    limit: int


@dataclass(frozen=True, slots=True)
class NewKmers(BatchMessage):
    """``delta``: k-mers added to the dictionary, in stream order; the first ``seeded`` are seeds.

    A code is canonical unless the strands are ``forward``.
    """

    seeded: int


@dataclass(frozen=True, slots=True)
class ReadSummaries(BatchMessage):
    """``read``: one row for each read of the batch. labels: the names of targets by number.

    barcodes: as in ReadDecisions.
    """

    labels: dict[int, str]
    barcodes: dict[int, str]


@dataclass(frozen=True, slots=True)
class ReadDecisions(BatchMessage):
    """``decision``: what to do with each read of the batch.

    ``action`` is an index into ``schema.ACTIONS``. labels, barcodes: names by the numbers in the
    columns ``target`` and ``barcode``.
    """

    labels: dict[int, str]
    barcodes: dict[int, str]


@dataclass(frozen=True, slots=True)
class Words(BatchMessage):
    """``word``: event words (thesis Fig. 11), chunk after chunk; ``word`` is the longer array.

    error: why there are no words although there were events, else empty.
    """

    error: str


@dataclass(frozen=True, slots=True)
class Retract(BatchMessage):
    """``retract``: earlier messages about these reads are void; an Upgrade follows.

    Its origin has the version of the dictionary that they were made with, and the new one.
    """


@dataclass(frozen=True, slots=True)
class Upgrade(BatchMessage):
    """``upgrade``: the new answers about the reads that the preceding Retract names.

    parts: by topic, the rows that its message would have for these reads; a topic without rows is
    missing. totals: the changes of the totals. Only its parts have columns.
    """

    parts: dict[str, BatchMessage]
    totals: dict[str, int]


@dataclass(frozen=True, slots=True)
class Settled(RecordMessage):
    """``settled``: all answers from batch ``from_batch`` on are of this dictionary version."""

    version: int
    from_batch: int


@dataclass(frozen=True, slots=True)
class Beat:
    """``beat``: the last record of every topic, so that a lost tail is noticed, and the totals.

    state: that of the daemon. published: the topics that this daemon can have messages on; None if
    it does not say.
    """

    stamp: Stamp
    heads: dict[str, int]
    state: str
    totals: dict[str, Any]
    published: frozenset[str] | None


@dataclass(frozen=True, slots=True)
class Status:
    """``status``: the daemon has changed its state; heads: as in a Beat."""

    stamp: Stamp
    heads: dict[str, int]
    state: str
    status: dict[str, Any]


@dataclass(frozen=True, slots=True)
class TallyRows:
    """``targets``, ``barcodes``, ``enough``, ``novelty``: rows of counts so far.

    rows: have the columns of the topic, ``schema.TOPICS[topic].shown``.

    version: that of the dictionary; with another one all counts start over. complete: False while
    kept batches are still to be counted.
    """

    stamp: Stamp
    rows: list[list[Any]]
    version: int
    complete: bool


@dataclass(frozen=True, slots=True)
class Gap:
    """Messages of a topic that were missed: those after record ``after`` up to ``until``."""

    topic: str
    after: int
    until: int


@dataclass(frozen=True, slots=True)
class NewEpoch:
    """The daemon was restarted with its journal: the stream and its records continue."""

    before: int
    epoch: int


@dataclass(frozen=True, slots=True)
class NewStream:
    """Records and the dictionary start over: another daemon, or the same one without a journal.

    before, stream: equal if the daemon has lost records of the stream that it had published.
    """

    before: str
    stream: str


@dataclass(frozen=True, slots=True)
class Reset:
    """The stream cannot continue from the cursor; it continues after record ``at`` instead.

    reason: ``too-old`` (records in between are no longer kept), ``stream`` (the cursor is of
    another stream) or ``future`` (the stream ends before it). stream: that of the messages that
    follow.
    """

    reason: str
    stream: str
    at: int


@dataclass(frozen=True, slots=True)
class Done:
    """After the messages queued before this, nothing up to record ``at`` is missing."""

    stream: str
    at: int


Standing = Beat | Status
"""Messages with the current end of the stream."""

Known = RecordMessage | Standing | TallyRows
Message = Known | Gap | NewEpoch | NewStream | Reset


# mypy: no-check-untyped-defs
# (kernels are typed by numba, by the arguments of their first call)


_DTYPES = {
    topic.name: {column.name: column.dtype for column in topic.columns + topic.optional}
    for topic in schema.BATCH_TOPICS.values()
}

_LIMITS = {
    topic.name: [(c.name, *c.limits) for c in topic.columns + topic.optional if c.limits]
    for topic in schema.BATCH_TOPICS.values()
}
_PER_CHUNK = {
    c.name for topic in schema.BATCH_TOPICS.values() for c in topic.columns if c.per_chunk
}


def check_columns(
    topic: schema.Topic,
    columns: Columns,
    *,
    reads: int,
    k: int,
    keys: Mapping[str, Collection[int]],
    distance: int,
) -> None:
    """WireError unless these are the columns of the topic and every row is consistent.

    reads: how many the batch has. keys: by header field, the numbers that it names. distance: the
    limit, 0 without one.
    """
    _check_dtypes(topic, columns)
    most = {"reads": reads - 1, "k": 4**k - 1, "distance": distance}
    checks: list[Check] = [
        (_are_within, (columns[name],), (least, limit if isinstance(limit, int) else most[limit]))
        for name, least, limit in _LIMITS[topic.name]
        if name in columns
    ]
    if topic.name in _RELATIONS:
        related, names = _RELATIONS[topic.name]
        checks.append((related, tuple(columns[name] for name in names), (k,)))
    for fine, values, limits in checks:
        if not fine(*values, *limits):
            bad = min(row for check in checks if (row := _first_bad(*check)) >= 0)
            raise malformed(f"row {bad + 1} has inconsistent values")
    if topic.name == "word":
        bad = int(_first_bad_chunk(columns["chunk_words"], columns["word"].size))
        if bad >= 0:
            raise malformed(f"chunk {bad + 1} has inconsistent values")
    for column in topic.columns + topic.optional:
        if column.key_of in keys and column.name in columns:
            _check_keys(column, columns[column.name], keys[column.key_of])


def _check_dtypes(topic: schema.Topic, columns: Columns) -> None:
    types = {name: values.dtype for name, values in columns.items()}
    wanted = _DTYPES[topic.name]
    if types != wanted:
        optional = {column.name for column in topic.optional} - columns.keys()
        wanted = {name: dtype for name, dtype in wanted.items() if name not in optional}
    if types != wanted:
        actual, right = (", ".join(f"{n} {t}" for n, t in of.items()) for of in (types, wanted))
        raise malformed(f"its columns are {actual or 'none'}, not {right}")
    # columns of rows, and columns of chunks
    sizes = {(name in _PER_CHUNK, values.size) for name, values in columns.items()}
    if len(sizes) > 1 + (topic.name == "word"):
        actual = ", ".join(f"{name} {values.size}" for name, values in columns.items())
        raise malformed(f"its columns differ in length: {actual}")


def _check_keys(column: schema.Column, values: NDArray[Any], keys: Collection[int]) -> None:
    """WireError unless every value is one of ``keys`` or the column's ``no_key``."""
    name, none = column.name, column.no_key
    if none in keys:
        raise malformed(f"{name} {none} is named, but is reserved for none")
    numbers = np.array(sorted(keys) or [none], dtype=np.int64)
    bad = _first_bad(_are_known, (values,), (numbers, none))
    if bad >= 0:
        raise malformed(f"row {bad + 1} of {name} is {values[bad]}, which is not named")


Check = tuple[Callable[..., bool], tuple[NDArray[Any], ...], tuple[object, ...]]
"""What checks rows, the columns that it takes, and what it takes after them."""


def _first_bad(
    fine: Callable[..., bool], columns: tuple[NDArray[Any], ...], limits: tuple[object, ...]
) -> int:
    """The index of the first row that is not ``fine``, -1 if all are."""
    if fine(*columns, *limits):
        return -1
    return bisect_left(
        range(columns[0].size),
        True,
        key=lambda row: not fine(*(values[: row + 1] for values in columns), *limits),
    )


# Kernels that check all rows without a branch, so that SIMD handles many at once; they are so short
# that releasing the GIL would take longer.


@njit(cache=True)
def _are_within(values, least, most):
    fine = True
    for i in range(values.size):
        # numba compares int64 and uint64 as floats; codes have 62 bits at most
        value = np.int64(values[i])
        fine &= (value >= least) & (value <= most)
    return fine


@njit(cache=True)
def _are_runs(start, end, windows, k):
    fine = True
    for i in range(start.size):
        fine &= (end[i] >= k) & (end[i] - k - windows[i] + 1 == start[i])
    return fine


@njit(cache=True)
def _are_summaries(length, windows, matches, mismatches, skipped, k):
    """Whether the windows of every read are its matches, mismatches and skipped windows."""
    fine = True
    for i in range(length.size):
        fine &= windows[i] - mismatches[i] == matches[i]
        fine &= max(length[i] - k + 1, 0) - windows[i] == skipped[i]
    return fine


@njit(cache=True)
def _are_spans(start, end, _k):
    fine = True
    for i in range(start.size):
        fine &= start[i] <= end[i]
    return fine


@njit(cache=True)
def _are_counts(matches, windows, bases, _k):
    fine = True
    for i in range(matches.size):
        fine &= (matches[i] <= windows[i]) & (windows[i] <= bases[i])
    return fine


_RELATIONS: dict[str, tuple[Callable[..., bool], tuple[str, ...]]] = {
    "match": (_are_runs, ("start", "end", "windows")),
    "mismatch": (_are_runs, ("start", "end", "windows")),
    "near": (_are_spans, ("start", "end")),
    "read": (_are_summaries, ("length", "windows", "matches", "mismatches", "skipped")),
    "decision": (_are_counts, ("matches", "windows", "bases")),
}
"""By topic: what its columns have in common, and the columns that the kernel takes before k."""


@njit(cache=True)
def _first_bad_chunk(chunk_words, words):
    """-1 if every word belongs to one chunk, else the index of a bad chunk."""
    for i in range(chunk_words.size):
        if not 0 <= chunk_words[i] <= words:
            return i
        words -= chunk_words[i]
    return chunk_words.size if words else -1


@njit(cache=True)
def _are_known(values, known, none):
    """Whether each value is ``none`` or one of the ascending ``known``, usually a single one."""
    fine = True
    first = known[0]
    for i in range(values.size):
        fine &= (values[i] == first) | (values[i] == none)
    if fine or known.size == 1:
        return fine
    last = np.int64(none)
    for i in range(values.size):
        value = np.int64(values[i])
        if value != last and value != none:
            at = np.searchsorted(known, value)
            if at == known.size or known[at] != value:
                return False
            last = value
    return True


def typed(message: FeedMessage) -> Known:
    """A decoded message as its type; WireError if it does not follow docs/protocol.md."""
    try:
        return _typed(message)
    except WireError as error:
        raise error.about(described(message.topic, message.header)) from None


def _typed(message: FeedMessage) -> Known:
    head, topic = message.header, message.topic
    at, previous = head["at"], head["prev"] if topic in schema.RECORD_TOPICS else 0
    stamp = Stamp(topic, head["stream"], head["epoch"], at, previous, head["time"], head)
    if topic in schema.RECORD_TOPICS:
        if previous >= at:
            raise malformed(f"the record before it is {previous}, not an earlier one")
        if topic == "settled":
            return Settled(stamp, integer(head, "version"), integer(head, "from_batch"))
        return _about_batch(stamp, message)
    if topic == "beat":
        return Beat(stamp, heads_of(head), text(head, "state"), _totals(head), _published(head))
    if topic in schema.TALLIES:
        return _tally(stamp, head)
    status = _map(head, "status")
    state, totals = text(status, "state"), _totals(status)
    return Status(stamp, heads_of(head), state, status | {"totals": totals})


def _tally(stamp: Stamp, head: Header) -> TallyRows:
    wanted = schema.TOPICS[stamp.topic].shown.split()
    columns, rows = head.get("columns"), head.get("rows")
    if (
        not isinstance(columns, list)
        or not isinstance(rows, list)
        or columns[: len(wanted)] != wanted
    ):
        raise malformed("fields 'columns' and 'rows' must be arrays of the topic")
    for row in rows:
        if not isinstance(row, list) or len(row) != len(columns):
            raise malformed("field 'rows' must have arrays, a value a column")
    rows = [row[: len(wanted)] for row in rows]
    for name, values in zip(wanted, zip(*rows, strict=True), strict=False):
        right, kinds = schema.TALLY_TYPES.get(name, ("integers", {int}))
        if not {*map(type, values)} <= {*kinds, type(None)}:
            raise malformed(f"'{name}' in field 'rows' must have {right} or nil")
    return TallyRows(stamp, rows, integer(head, "version"), head.get("complete") is not False)


_TOTALS = frozenset(schema.TOPICS["beat"].shown.split()) - {"state"}
_ORIGIN = ("batch", "base", "producer_epoch", "producer_seq", "version_before", "version")


def _about_batch(stamp: Stamp, message: FeedMessage) -> BatchMessage:
    topic, head, columns = message.topic, message.header, message.columns
    batch, base, epoch, sequence, before, version = integers(head, _ORIGIN)
    k = integer(head, "k", 1, MAX_K)
    producer = text(head, "producer")
    origin = Origin(batch, base, producer, epoch, sequence, before, version, k, message.names)
    if topic == "upgrade":
        return Upgrade(stamp, origin, {}, _parts(stamp, origin, head, columns), _changes(head))
    return _rows(stamp, origin, topic, head, columns)


def _rows(stamp: Stamp, origin: Origin, topic: str, head: Header, columns: Columns) -> BatchMessage:
    """The rows of a topic; head: has the fields of this topic."""
    names, sets = NAMED.of(topic, head)
    limit = integer(head, "distance") if topic in ("near", "ltb") else 0
    wanted = schema.TOPICS[topic]
    # a later daemon may send more columns
    columns = {name: values for name, values in columns.items() if name in _DTYPES[topic]}
    barcodes = _named_in(head, "barcodes") if topic in ("read", "decision") else {}
    keys: dict[str, Collection[int]] = {"sets": sets, "targets": names, "barcodes": barcodes}
    check_columns(wanted, columns, reads=len(origin.names), k=origin.k, keys=keys, distance=limit)
    for column in wanted.optional:
        if column.name not in columns:
            columns[column.name] = np.full(columns["read"].size, -1, column.dtype)
    match topic:
        case "match" | "mismatch":
            return Intervals(stamp, origin, columns, sets)
        case "near":
            return Near(stamp, origin, columns, sets, limit)
        case "ltb":
            return Automaton(stamp, origin, columns, limit)
        case "delta":
            seeded = integer(head, "seeded", 0, columns["code"].size)
            return NewKmers(stamp, origin, columns, seeded)
        case "read":
            return ReadSummaries(stamp, origin, columns, names, barcodes)
        case "decision":
            return ReadDecisions(stamp, origin, columns, names, barcodes)
        case "retract":
            return Retract(stamp, origin, columns)
    error = head.get("error", "")
    if not isinstance(error, str):
        raise malformed("field 'error' must be a string")
    return Words(stamp, origin, columns, error)


def _parts(stamp: Stamp, origin: Origin, head: Header, columns: Columns) -> dict[str, BatchMessage]:
    """The rows that an upgrade has for each topic; unknown topics of a later daemon are skipped."""
    parts = {}
    for wire, fields in _map(head, "parts").items():
        topic = schema.NAMES.get(wire, "")
        if topic not in schema.TOPICS["upgrade"].parts:
            continue
        if not isinstance(fields, dict):
            raise malformed("field 'parts' must be a map of maps")
        own = {
            name.removeprefix(wire): values
            for name, values in columns.items()
            if name.startswith(wire)
        }
        parts[topic] = _rows(replace(stamp, topic=topic), origin, topic, fields, own)
    return parts


def _changes(head: Header) -> dict[str, int]:
    totals = _map(head, "totals")
    if not all(type(change) is int for change in totals.values()):
        raise malformed("field 'totals' must be a map of integers")
    return totals


def _map(header: Header, key: str) -> Header:
    value = header.get(key)
    if not isinstance(value, dict):
        raise malformed(f"field '{key}' must be a map")
    return value


def heads_of(header: Header) -> dict[str, int]:
    """The last record by topic, without unknown topics of a later daemon."""
    heads = _map(header, "heads")
    return {schema.NAMES[topic]: integer(heads, topic) for topic in heads if topic in schema.NAMES}


def _published(header: Header) -> frozenset[str] | None:
    topics = header.get("published")
    if topics is None:
        return None
    if not isinstance(topics, list) or not all(isinstance(topic, str) for topic in topics):
        raise malformed("field 'published' must be an array of strings")
    return frozenset(schema.NAMES[topic] for topic in topics if topic in schema.NAMES)


def _totals(header: Header) -> dict[str, Any]:
    totals = _map(header, "totals")
    if not all(type(totals[key]) in (int, float) for key in _TOTALS & totals.keys()):
        raise malformed("field 'totals' must be a map of numbers")
    return totals
