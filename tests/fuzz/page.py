"""What docs/protocol.md says about messages to the daemon, in plain Python without the program.

A message is judged as a whole. Its faults are the possible reasons to refuse it; which one of
several is reported is left to the daemon.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence
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
