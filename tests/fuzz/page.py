"""What docs/protocol.md says about messages to the daemon, in plain Python without the program.

A message is judged as a whole. Its faults are the possible reasons to refuse it; which one of
several is reported is left to the daemon.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import msgpack
from crc32c import crc32c

Frames = Sequence[bytes]
Map = dict[str, Any]

REASONS = frozenset(
    (
        *("malformed", "version", "checksum", "base", "too-large", "credit", "full", "gap"),
        *("epoch", "stale-epoch", "conflict", "producers", "denied", "draining"),
    )
)
"""On ingest."""

TOPICS = (
    *("match", "mismatch", "near", "ltb", "delta", "word", "read", "decision"),
    *("retract", "upgrade", "settled", "beat", "status"),
    *("targets", "barcodes", "enough", "novelty"),
)
LARGEST = 2**63 - 1
_COMMANDS = (
    *("status", "drain", "targets", "panel", "coverage", "novelty", "ask", "reload"),
    *("submit", "jobs", "job", "cancel", "retry", "result"),
)
_LETTERS = frozenset(b"ACGTURYKMSWBDHVNacgturykmswbdhvn")
_CODES = bytes.maketrans(b"ACGTUacgtu", b"\0\1\2\3\3\0\1\2\3\3")
_AMBIGUOUS = dict.fromkeys(b"RYKMSWBDHVNrykmswbdhvn", 4)
CODES = bytes(_AMBIGUOUS.get(byte, code) for byte, code in enumerate(_CODES))
"""The code of each letter: A, C, G, T (and U), and 4 for an ambiguity code."""

_HIDDEN = frozenset(("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp", "Zs"))
_TIME = re.compile(
    rb"(\d{4})-(\d\d)-(\d\d)[Tt]([01]\d|2[0-3]):[0-5]\d:([0-5]\d|60)(\.\d{1,9})?"
    rb"([Zz]|[+-]([01]\d|2[0-3]):[0-5]\d)?"
)
_DAYS = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_LONGEST_TIME = 35


class Faulty(Exception):
    """A message that must be refused. reasons: for one of these."""

    def __init__(self, *reasons: str) -> None:
        self.reasons = frozenset(reasons)
        super().__init__(*reasons)


class Batch(NamedTuple):
    """The content of a batch."""

    names: list[str]
    offsets: list[int]
    codes: bytes


# ---- messages and headers ------------------------------------------------------------------------


def opened(frames: Frames) -> tuple[Map, list[bytes]]:
    """The header of a message whose checksum is right, and the frames after it."""
    if len(frames) < 2 or len(frames[-1]) != 4:
        raise Faulty("malformed", "version")
    crc = 0
    for frame in frames[:-1]:
        crc = crc32c(frame, crc)
    if crc.to_bytes(4, "little") != bytes(frames[-1]):
        raise Faulty("checksum", "version")
    return header_in(frames[0]), [*frames[1:-1]]


def header_in(frame: bytes) -> Map:
    """The fields of a header."""
    if len(frame) > 65_536:
        raise Faulty("malformed")
    try:
        fields = packed(frame)
    except Faulty:
        # its version may still be readable
        raise Faulty("malformed", "version") from None
    if type(fields) is not dict:
        raise Faulty("malformed")
    if type(fields.get("v")) is not int or fields["v"] != 2:
        raise Faulty("version")
    return fields


def packed(frame: bytes) -> Any:
    """The msgpack object of a frame; keys of all maps are strings."""
    try:
        return msgpack.unpackb(frame, strict_map_key=False, object_pairs_hook=_strings)
    except (ValueError, TypeError, RecursionError, msgpack.UnpackException):
        raise Faulty("malformed") from None


def _strings(pairs: Iterable[tuple[Any, Any]]) -> Map:
    made = {}
    for key, value in pairs:
        if type(key) is not str:
            raise ValueError
        made[key] = value
    return made


def number(fields: Map, key: str, least: int = 0, most: int = LARGEST) -> int:
    """An integer of a header."""
    value = fields.get(key)
    if type(value) is not int or not least <= value <= most:
        raise Faulty("malformed")
    return value


def printable(text: str) -> bool:
    """Whether each character is a space, or in no Unicode category Other or Separator."""
    if text.isascii():
        return all(" " <= letter <= "~" for letter in text)
    return all(letter == " " or unicodedata.category(letter) not in _HIDDEN for letter in text)


def name(fields: Map, key: str) -> str:
    """A name of a header."""
    value = fields.get(key)
    if type(value) is not str or not 1 <= len(value) <= 256 or not printable(value):
        raise Faulty("malformed")
    return value


# ---- ingest --------------------------------------------------------------------------------------


def check_hello(fields: Map, frames: Frames) -> None:
    """Check the fields that only a hello has."""
    offered = fields.get("versions", [2])
    spoken = type(offered) is list and any(type(one) is int and one == 2 for one in offered)
    needed = fields.get("need", 0)
    right = type(needed) is int and 0 <= needed <= LARGEST
    if frames or not spoken or not right:
        raise Faulty("malformed", *(() if spoken else ("version",)))


def check_batch(fields: Map) -> None:
    """Check the fields of a batch other than its key and its form."""
    number(fields, "seq", 1)
    mark, growing = fields.get("mark", b""), fields.get("growing", False)
    if type(mark) is not bytes or len(mark) > 256 or type(growing) is not bool:
        raise Faulty("malformed")


def reads_of(fields: Map, frames: Frames) -> Batch:
    """The reads of a batch."""
    match fields.get("form"):
        case "columns" if 3 <= len(frames) <= 4:
            names = packed(frames[0])
            _check_names(names)
            data = bytes(frames[1])
            if len(data) != 8 * (len(names) + 1):
                raise Faulty("malformed")
            offsets = [
                int.from_bytes(data[at : at + 8], "little", signed=True)
                for at in range(0, len(data), 8)
            ]
            letters = bytes(frames[2])
            if offsets[0] or offsets[-1] != len(letters) or offsets != sorted(offsets):
                raise Faulty("malformed")
        case "list" if len(frames) == 1:
            try:
                reads = packed(frames[0])
            except Faulty:
                # text that is not UTF-8 has no valid letters, either
                raise Faulty("malformed", "base") from None
            names, offsets, letters = _listed(reads)
        case _:
            raise Faulty("malformed")
    if not _LETTERS.issuperset(letters):
        # an invalid context may be reported instead
        raise Faulty("base", "malformed")
    for context in frames[3:]:
        check_context(packed(context), len(names))
    return Batch(names, offsets, letters.translate(CODES))


def _check_names(names: Any) -> None:
    if type(names) is not list:
        raise Faulty("malformed")
    for one in names:
        if type(one) is not str or not printable(one):
            raise Faulty("malformed")


def _listed(reads: Any) -> tuple[list[str], list[int], bytes]:
    if type(reads) is not list:
        raise Faulty("malformed")
    names, offsets, letters = [], [0], b""
    for read in reads:
        # elements beyond those of a fixed-length array are ignored
        if type(read) is not list or len(read) < 2 or type(read[1]) not in (str, bytes):
            raise Faulty("malformed")
        names.append(read[0])
        text = read[1]
        letters += text.encode("ascii", "replace") if type(text) is str else text
        offsets.append(len(letters))
    _check_names(names)
    return names, offsets, letters


def check_context(columns: Any, reads: int) -> None:
    """Check the context of ``reads`` reads."""
    if type(columns) is not dict:
        raise Faulty("malformed")
    if "channel" in columns:
        _check_numbers(columns["channel"], reads, 2**31 - 1)
    if "start_time" in columns:
        _check_times(columns["start_time"], reads)
    for key in ("run", "barcode", "sample"):
        if key not in columns:
            continue
        texts, index = _pair(columns[key], list)
        if len(texts) > 1024:
            raise Faulty("malformed")
        for text in texts:
            if type(text) is not str or not 1 <= len(text.encode()) <= 256 or not printable(text):
                raise Faulty("malformed")
        _check_numbers(index, reads, len(texts) - 1)


def _pair(column: Any, first: type) -> tuple[Any, bytes]:
    if type(column) is not list or len(column) < 2:
        raise Faulty("malformed")
    if type(column[0]) is not first or type(column[1]) is not bytes:
        raise Faulty("malformed")
    return column[0], column[1]


def _check_numbers(data: Any, reads: int, most: int) -> None:
    if type(data) is not bytes or len(data) != 4 * reads:
        raise Faulty("malformed")
    for at in range(0, len(data), 4):
        if not -1 <= int.from_bytes(data[at : at + 4], "little", signed=True) <= most:
            raise Faulty("malformed")


def _check_times(column: Any, reads: int) -> None:
    width, text = _pair(column, int)
    if not 1 <= width <= _LONGEST_TIME or len(text) != width * reads:
        raise Faulty("malformed")
    for at in range(0, len(text), width):
        time = text[at : at + width].rstrip(b"\0")
        if time and not _is_time(time):
            raise Faulty("malformed")


def _is_time(time: bytes) -> bool:
    found = _TIME.fullmatch(time)
    if found is None:
        return False
    year, month, day = (int(part) for part in found.groups()[:3])
    leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    if not 1 <= month <= 12 or not 1 <= day <= _DAYS[month - 1]:
        return False
    return leap or (month, day) != (2, 29)


# ---- sync, control, feed -------------------------------------------------------------------------


def check_sync(fields: Map, frames: Frames) -> None:
    """Check a request on sync."""
    number(fields, "id")
    if frames:
        raise Faulty("malformed")
    match fields.get("type"):
        case "pull":
            _check_pull(fields)
        case "snapshot":
            number(fields, "credit", 1)
        case "credit":
            number(fields, "bytes")
        case "heads" | "stop":
            pass
        case _:
            raise Faulty("malformed")


def _check_pull(fields: Map) -> None:
    after = number(fields, "after")
    number(fields, "credit", 1)
    if fields.get("until") is not None:
        number(fields, "until", after)
    stream = fields.get("stream", "")
    if type(stream) is not str or (len(stream) != 16 and (after or stream)):
        raise Faulty("malformed")
    topics = fields.get("topics")
    if type(topics) is not list or not 1 <= len(topics) <= 64:
        raise Faulty("malformed")
    if not all(type(topic) is str for topic in topics):
        raise Faulty("malformed")


def check_control(fields: Map, frames: Frames) -> str:
    """The command of a valid request on control, whether or not this daemon can execute it."""
    command = fields.get("command")
    if type(command) is not str or command not in _COMMANDS:
        raise Faulty("malformed")
    if command == "ask":
        reads_of(fields, frames)
    elif frames:
        raise Faulty("malformed")
    if command == "status" and type(fields.get("subscriptions", False)) is not bool:
        raise Faulty("malformed")
    key = fields.get("key", "")
    if command == "reload" and (type(key) is not str or len(key.encode()) > 64):
        raise Faulty("malformed")
    return command


def begins_a_topic(prefix: bytes) -> bool:
    """Whether a subscription is a prefix of a topic on the wire."""
    return any(f"{topic}.".encode().startswith(prefix) for topic in TOPICS)


Columns = dict[str, tuple[str, list[int]]]
"""By name, the type and values of a column."""

_TYPES = {
    "uint8": (1, False),
    "uint32": (4, False),
    "uint64": (8, False),
    "int32": (4, True),
    "int64": (8, True),
}
_OF = {
    "match": "read:uint32 start:int64 end:int64 windows:int64 target:uint32",
    "mismatch": "read:uint32 start:int64 end:int64 windows:int64",
    "near": "read:uint32 start:int64 end:int64 distance:uint8 strand:uint8 code:uint64 "
    "target:uint32 snapshot:int64 best:uint8",
    "ltb": "read:uint32 end:int64 distances:uint32 depths:uint32 snapshot:int64",
    "delta": "code:uint64 read:uint32 start:int64",
    "word": "word:uint64 chunk_base:int64 chunk_version:int64 chunk_words:int64",
    "read": "read:uint32 length:int64 windows:int64 matches:int64 mismatches:int64 "
    "skipped:int64 best_target:int32",
    "decision": "read:uint32 channel:int32 barcode:int32 action:uint8 target:uint32 "
    "matches:int64 windows:int64 bases:int64",
    "retract": "read:uint32",
}
_COLUMNS = {
    topic: dict(column.split(":") for column in text.split()) for topic, text in _OF.items()
}
_SHOWN = {
    "targets": "target reads bases matches kmers seen breadth depth",
    "barcodes": "barcode target reads bases matches kmers seen breadth depth",
    "enough": "barcode group target reads breadth depth",
    "novelty": "reads bases kmers new",
}
_REVISED = ("match", "mismatch", "near", "ltb", "read")
_TOTALS = frozenset(
    [
        "reads",
        "bases",
        "windows",
        "matches",
        "mismatches",
        "reads_on_target",
        "new_kmers",
        "bases_per_second",
    ]
)
_UNNUMBERED = frozenset(("beat", "status", *_SHOWN))
_NONE = 0xFFFFFFFF


class Unsure(Exception):
    """The page leaves the outcome open.

    Raised for a number of the right value but the wrong type, and for fields that a topic does not
    need.
    """


def topic_of(frames: Sequence[bytes]) -> str:
    """The topic of a message that follows the page, "" for one to be ignored."""
    if len(frames) < 3:
        raise Faulty("malformed")
    crc = 0
    for frame in frames[:-1]:
        crc = crc32c(frame, crc)
    if crc.to_bytes(4, "little") != frames[-1]:
        raise Faulty("checksum")
    return body(frames[:-1])


def body(frames: Sequence[bytes]) -> str:
    """As ``topic_of``, for frames without a checksum."""
    head = packed(frames[1])
    if type(head) is not dict or type(head.get("v")) is not int or head["v"] != 2:
        raise Faulty("version")
    wire = bytes(frames[0])
    topic = next((topic for topic in TOPICS if f"{topic}.".encode() == wire), "")
    if not topic:
        return ""
    if head.get("topic") != f"{topic}.":
        raise Faulty("malformed")
    stream = head.get("stream")
    if type(stream) is not str or len(stream) != 16:
        raise Faulty("malformed")
    at = number(head, "at")
    for key in ("epoch", "time"):
        number(head, key)
    if topic not in _UNNUMBERED and number(head, "prev") >= at:
        raise Faulty("malformed")
    _CHECKS.get(topic, _about_batch)(topic, head, frames[2:])
    return topic


# ---- about the daemon and the stream -------------------------------------------------------------


def _settled(_: str, head: Map, __: Sequence[bytes]) -> None:
    number(head, "version")
    number(head, "from_batch")


def _beat(_: str, head: Map, __: Sequence[bytes]) -> None:
    _check_heads(head)
    name(head, "state")
    _check_totals(head)
    published = head.get("published")
    if published is not None and not (
        type(published) is list and all(type(topic) is str for topic in published)
    ):
        raise Faulty("malformed")


def _status(_: str, head: Map, __: Sequence[bytes]) -> None:
    _check_heads(head)
    status = head.get("status")
    if type(status) is not dict:
        raise Faulty("malformed")
    name(status, "state")
    _check_totals(status)


def _check_heads(head: Map) -> None:
    heads = head.get("heads")
    if type(heads) is not dict:
        raise Faulty("malformed")
    for topic in TOPICS:
        if f"{topic}." in heads:
            number(heads, f"{topic}.")


def _check_totals(fields: Map) -> None:
    totals = fields.get("totals")
    if type(totals) is not dict:
        raise Faulty("malformed")
    if not all(type(totals[key]) in (int, float) for key in _TOTALS & totals.keys()):
        raise Faulty("malformed")


def _tally(topic: str, head: Map, _: Sequence[bytes]) -> None:
    wanted = _SHOWN[topic].split()
    columns, rows = head.get("columns"), head.get("rows")
    if type(columns) is not list or type(rows) is not list or columns[: len(wanted)] != wanted:
        raise Faulty("malformed")
    for row in rows:
        if type(row) is not list or len(row) != len(columns):
            raise Faulty("malformed")
        for title, value in zip(wanted, row[: len(wanted)], strict=True):
            if title in ("barcode", "group", "target"):
                fine = value is None or type(value) is str
            elif title in ("breadth", "depth"):
                fine = value is None or type(value) in (float, int)
            else:
                fine = value is None or type(value) is int
            if not fine:
                raise Faulty("malformed")
    number(head, "version")


# ---- about a batch -------------------------------------------------------------------------------


def _about_batch(topic: str, head: Map, data: Sequence[bytes]) -> None:
    if not data:
        raise Faulty("malformed")
    names = packed(data[0])
    if type(names) is not list or not all(type(one) is str and printable(one) for one in names):
        raise Faulty("malformed")
    columns = _columns(head, data[1:])
    for key in ("batch", "base", "producer_epoch", "producer_seq", "version_before", "version"):
        number(head, key)
    k = number(head, "k", 1, 31)
    name(head, "producer")
    if topic == "upgrade":
        _check_upgrade(head, columns, len(names), k)
    else:
        _check_rows(topic, head, columns, len(names), k)


def _columns(head: Map, frames: Sequence[bytes]) -> Columns:
    described = head.get("columns")
    if type(described) is not list or len(described) != len(frames):
        raise Faulty("malformed")
    found: Columns = {}
    for entry, frame in zip(described, frames, strict=True):
        if type(entry) is not list or len(entry) < 3:
            raise Faulty("malformed")
        title, kind, rows = entry[:3]
        if type(title) is not str or type(kind) is not str or type(rows) is not int:
            raise Faulty("malformed")
        if kind not in _TYPES:
            continue
        size, signed = _TYPES[kind]
        if title in found or len(frame) != rows * size:
            raise Faulty("malformed")
        numbers = [
            int.from_bytes(frame[at : at + size], "little", signed=signed)
            for at in range(0, len(frame), size)
        ]
        found[title] = kind, numbers
    return found


def _check_upgrade(head: Map, columns: Columns, reads: int, k: int) -> None:
    parts, totals = head.get("parts"), head.get("totals")
    if type(parts) is not dict or type(totals) is not dict:
        raise Faulty("malformed")
    if not all(type(change) is int for change in totals.values()):
        raise Faulty("malformed")
    for topic in _REVISED:
        if f"{topic}." not in parts:
            continue
        fields = parts[f"{topic}."]
        if type(fields) is not dict:
            raise Faulty("malformed")
        own = {
            title.removeprefix(f"{topic}."): column
            for title, column in columns.items()
            if title.startswith(f"{topic}.")
        }
        _check_rows(topic, fields, own, reads, k)


def _check_rows(topic: str, fields: Map, columns: Columns, reads: int, k: int) -> None:
    targets, sets = _references(topic, fields)
    limit = number(fields, "distance") if topic in ("near", "ltb") else 0
    values = {}
    for title, kind in _COLUMNS[topic].items():
        if title not in columns or columns[title][0] != kind:
            raise Faulty("malformed")
        values[title] = columns[title][1]
    if topic == "word":
        _check_words(fields, values)
        return
    rows = len(next(iter(values.values())))
    if any(len(column) != rows for column in values.values()):
        raise Faulty("malformed")
    if topic == "read":
        for title in ("channel", "barcode"):
            kind, column = columns.get(title, ("int32", [-1] * rows))
            if kind != "int32" or len(column) != rows:
                raise Faulty("malformed")
            values[title] = column
    known = sets if topic in ("match", "near") else targets
    barcodes = _named(fields, "barcodes") if topic in ("read", "decision") else frozenset()
    if _NONE in known and "target" in values:
        raise Faulty("malformed")
    for row in zip(*values.values(), strict=True):
        one = dict(zip(values, row, strict=True))
        fine = one["read"] < reads and _ROWS[topic](one, k, limit)
        fine = fine and one.get("target", _NONE) in known | {_NONE}
        fine = fine and one.get("best_target", -1) in known | {-1}
        fine = fine and one.get("barcode", -1) in barcodes | {-1}
        if not fine:
            raise Faulty("malformed")
    if topic == "delta":
        number(fields, "seeded", 0, rows)


def _check_words(fields: Map, values: dict[str, list[int]]) -> None:
    lengths = {len(values[title]) for title in values if title != "word"}
    counts = values["chunk_words"]
    if len(lengths) > 1 or any(count < 0 for count in counts):
        raise Faulty("malformed")
    if sum(counts) != len(values["word"]) or type(fields.get("error", "")) is not str:
        raise Faulty("malformed")


def _run(row: dict[str, int], k: int, _: int) -> bool:
    right = row["end"] == row["start"] + row["windows"] - 1 + k
    return right and row["start"] >= 0 and row["windows"] >= 1


def _near(row: dict[str, int], k: int, limit: int) -> bool:
    fine = 0 <= row["start"] <= row["end"] and row["distance"] <= limit
    return fine and row["strand"] <= 1 and row["best"] <= 1 and row["code"] < 4**k


def _ltb(row: dict[str, int], _: int, __: int) -> bool:
    return row["end"] >= 0


def _delta(row: dict[str, int], k: int, _: int) -> bool:
    return row["start"] >= 0 and row["code"] < 4**k


def _read(row: dict[str, int], k: int, _: int) -> bool:
    least = min(row[key] for key in ("length", "windows", "matches", "mismatches", "skipped"))
    right = row["matches"] + row["mismatches"] == row["windows"]
    right = right and row["windows"] + row["skipped"] == max(row["length"] - k + 1, 0)
    return right and least >= 0 and row["channel"] >= -1


def _decision(row: dict[str, int], _: int, __: int) -> bool:
    fine = 0 <= row["matches"] <= row["windows"] <= row["bases"]
    return fine and row["channel"] >= -1 and row["action"] <= 2


_ROWS: dict[str, Callable[[dict[str, int], int, int], bool]] = {
    "match": _run,
    "mismatch": _run,
    "near": _near,
    "ltb": _ltb,
    "delta": _delta,
    "read": _read,
    "decision": _decision,
    "retract": lambda *_: True,
}


def _references(topic: str, fields: Map) -> tuple[frozenset[int], frozenset[int]]:
    """The numbers of targets and sets; other topics than these may or may not check them."""
    needed = {"match": 2, "near": 2, "read": 1, "decision": 1}.get(topic, 0)
    targets = sets = frozenset[int]()
    try:
        targets = _named(fields, "targets")
        needed -= 1
        sets = _sets(fields, targets)
        needed -= 1
    except Faulty:
        if needed > 0:
            raise
        raise Unsure from None
    return targets, sets


def _named(fields: Map, key: str) -> frozenset[int]:
    """The numbers of the named targets or barcodes."""
    listed = fields.get(key, [])
    if type(listed) is not list:
        raise Faulty("malformed")
    found = {}
    for entry in listed:
        if type(entry) is not list or len(entry) < 2:
            raise Faulty("malformed")
        _check_number(entry[0])
        # if a number is repeated, the last one counts
        found[entry[0]] = entry[1]
    if not all(type(text) is str for text in found.values()):
        raise Faulty("malformed")
    return frozenset(found)


def _sets(fields: Map, targets: frozenset[int]) -> frozenset[int]:
    listed = fields.get("sets", [])
    if type(listed) is not list:
        raise Faulty("malformed")
    found = []
    for entry in listed:
        if type(entry) is not list or len(entry) < 2 or type(entry[1]) is not list:
            raise Faulty("malformed")
        for target in entry[1]:
            _check_number(target)
            if target not in targets:
                raise Faulty("malformed")
        _check_number(entry[0])
        found.append(entry[0])
    return frozenset(found)


def _check_number(value: Any) -> None:
    # a whole float equals an integer, but is not one on the wire
    if type(value) in (bool, float) and float(value).is_integer() and 0 <= value <= _NONE:
        raise Unsure
    if type(value) is not int or not 0 <= value <= _NONE:
        raise Faulty("malformed")


_CHECKS: dict[str, Callable[[str, Map, Sequence[bytes]], None]] = {
    "settled": _settled,
    "beat": _beat,
    "status": _status,
    **dict.fromkeys(_SHOWN, _tally),
}
