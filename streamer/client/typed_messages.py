"""Converts decoded messages of the feed to their types, with every field and row checked."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from streamer.client.columns import check_columns, check_numbers, optional_columns
from streamer.client.messages import (
    Automaton,
    BatchMessage,
    Beat,
    Intervals,
    Known,
    Near,
    NewKmers,
    Origin,
    ReadDecisions,
    ReadSummaries,
    Retract,
    Settled,
    Stamp,
    Status,
    TallyRows,
    Upgrade,
    Words,
)
from streamer.client.named_targets import NAMED, named_in
from streamer.protocol.feed_messages import Columns, FeedMessage, described
from streamer.protocol.header import Header, Reason, WireError, integer, integers, text
from streamer.protocol.schema import NAMES, RECORD_TOPICS, SETS_OF, TALLIES, TALLY_TYPES, TOPICS
from trie.codes import MAX_K


def typed(message: FeedMessage) -> Known:
    """A decoded message as its type; WireError if it does not follow docs/protocol.md."""
    try:
        return _typed(message)
    except WireError as error:
        raise error.about(described(message.topic, message.header)) from None


def _typed(message: FeedMessage) -> Known:
    head, topic = message.header, message.topic
    at, previous = head["at"], head["prev"] if topic in RECORD_TOPICS else 0
    stamp = Stamp(topic, head["stream"], head["epoch"], at, previous, head["time"], head)
    if topic in RECORD_TOPICS:
        if previous >= at:
            problem = f"the record before it is {previous}, not an earlier one"
            raise WireError(Reason.MALFORMED, problem)
        if topic == "settled":
            return Settled(stamp, integer(head, "version"), integer(head, "from_batch"))
        return _about_batch(stamp, message)
    if topic == "beat":
        return Beat(stamp, _heads(head), text(head, "state"), _totals(head), _published(head))
    if topic in TALLIES:
        return _tally(stamp, head)
    status = _map(head, "status")
    state, totals = text(status, "state"), _totals(status)
    return Status(stamp, _heads(head), state, status | {"totals": totals})


def _tally(stamp: Stamp, head: Header) -> TallyRows:
    wanted = TOPICS[stamp.topic].shown.split()
    columns, rows = head.get("columns"), head.get("rows")
    if (
        not isinstance(columns, list)
        or not isinstance(rows, list)
        or columns[: len(wanted)] != wanted
    ):
        raise WireError(Reason.MALFORMED, "fields 'columns' and 'rows' must be arrays of the topic")
    for row in rows:
        if not isinstance(row, list) or len(row) != len(columns):
            raise WireError(Reason.MALFORMED, "field 'rows' must have arrays, a value a column")
    rows = [row[: len(wanted)] for row in rows]
    for name, values in zip(wanted, zip(*rows, strict=True), strict=False):
        right, kinds = TALLY_TYPES.get(name, ("integers", {int}))
        if not {*map(type, values)} <= {*kinds, type(None)}:
            problem = f"'{name}' in field 'rows' must have {right} or nil"
            raise WireError(Reason.MALFORMED, problem)
    return TallyRows(stamp, rows, integer(head, "version"), head.get("complete") is not False)


_TOTALS = frozenset(TOPICS["beat"].shown.split()) - {"state"}
_ORIGIN = ("batch", "base", "producer_epoch", "producer_seq", "version_before", "version")


def _about_batch(stamp: Stamp, message: FeedMessage) -> BatchMessage:
    topic, head, columns = message.topic, message.header, message.columns
    batch, base, epoch, sequence, before, version = integers(head, _ORIGIN)
    k = integer(head, "k", 1, MAX_K)
    producer = text(head, "producer")
    origin = Origin(batch, base, producer, epoch, sequence, before, version, k, message.names)
    if topic == "upgrade":
        return Upgrade(stamp, origin, _parts(stamp, origin, head, columns), _changes(head))
    return _rows(stamp, origin, topic, head, columns)


def _rows(stamp: Stamp, origin: Origin, topic: str, head: Header, columns: Columns) -> BatchMessage:
    """The rows of a topic; head: has the fields of this topic."""
    names, sets = NAMED.of(topic, head)
    limit = integer(head, "distance") if topic in ("near", "ltb") else 0
    wanted = TOPICS[topic]
    given = columns
    if len(columns) > len(wanted.columns):
        # a later daemon may send more columns
        known = {column.name for column in wanted.columns}
        columns = {name: values for name, values in columns.items() if name in known}
    named = sets if topic in SETS_OF else names
    check_columns(wanted, columns, reads=len(origin.names), k=origin.k, known=named, limit=limit)
    match topic:
        case "match":
            return Intervals(stamp, origin, **columns, sets=sets)
        case "mismatch":
            return Intervals(stamp, origin, **columns, target=None, sets=sets)
        case "near":
            return Near(stamp, origin, limit, **columns, sets=sets)
        case "ltb":
            return Automaton(stamp, origin, limit, **columns)
        case "delta":
            seeded = integer(head, "seeded", 0, columns["code"].size)
            return NewKmers(stamp, origin, seeded, **columns)
        case "read":
            context = optional_columns(wanted, given, columns["read"].size)
            barcodes = named_in(head, "barcodes")
            check_numbers("barcode", context["barcode"], barcodes, -1)
            return ReadSummaries(
                stamp, origin, **columns, labels=names, **context, barcodes=barcodes
            )
        case "decision":
            barcodes = named_in(head, "barcodes")
            check_numbers("barcode", columns["barcode"], barcodes, -1)
            return ReadDecisions(stamp, origin, **columns, labels=names, barcodes=barcodes)
        case "retract":
            return Retract(stamp, origin, **columns)
    error = head.get("error", "")
    if not isinstance(error, str):
        raise WireError(Reason.MALFORMED, "field 'error' must be a string")
    return Words(stamp, origin, **columns, error=error)


def _parts(stamp: Stamp, origin: Origin, head: Header, columns: Columns) -> dict[str, BatchMessage]:
    """The rows that an upgrade has for each topic; unknown topics of a later daemon are skipped."""
    found = {}
    for wire, fields in _map(head, "parts").items():
        topic = NAMES.get(wire, "")
        if topic not in TOPICS["upgrade"].parts:
            continue
        if not isinstance(fields, dict):
            raise WireError(Reason.MALFORMED, "field 'parts' must be a map of maps")
        own = {
            name.removeprefix(wire): values
            for name, values in columns.items()
            if name.startswith(wire)
        }
        found[topic] = _rows(replace(stamp, topic=topic), origin, topic, fields, own)
    return found


def _changes(head: Header) -> dict[str, int]:
    totals = _map(head, "totals")
    if not all(type(change) is int for change in totals.values()):
        raise WireError(Reason.MALFORMED, "field 'totals' must be a map of integers")
    return totals


def _map(header: Header, key: str) -> Header:
    value = header.get(key)
    if not isinstance(value, dict):
        raise WireError(Reason.MALFORMED, f"field '{key}' must be a map")
    return value


def _heads(header: Header) -> dict[str, int]:
    """The last record by topic, without unknown topics of a later daemon."""
    heads = _map(header, "heads")
    return {NAMES[topic]: integer(heads, topic) for topic in heads if topic in NAMES}


def _published(header: Header) -> frozenset[str] | None:
    topics = header.get("published")
    if topics is None:
        return None
    if not isinstance(topics, list) or not all(isinstance(topic, str) for topic in topics):
        raise WireError(Reason.MALFORMED, "field 'published' must be an array of strings")
    return frozenset(NAMES[topic] for topic in topics if topic in NAMES)


def _totals(header: Header) -> dict[str, Any]:
    totals = _map(header, "totals")
    if not all(type(totals[key]) in (int, float) for key in _TOTALS & totals.keys()):
        raise WireError(Reason.MALFORMED, "field 'totals' must be a map of numbers")
    return totals
