"""The fields of a producer's message, before it is accepted or refused."""

from __future__ import annotations

from contextlib import suppress
from typing import NamedTuple

from streamer.daemon.core.producers import ProducerState
from streamer.protocol.header import Header, Reason, WireError, integer, text

MAX_MARK_BYTES = 256

NOTHING_DECIDED = "nothing is decided: name targets in decision.enrich or decision.deplete"


class Offer(NamedTuple):
    """A batch that will be accepted if its reads are valid.

    growing: whether its reads are only decided on.
    """

    producer: ProducerState
    route: bytes
    sequence: int
    size: int
    content: int
    mark: bytes
    growing: bool = False


def mark_of(header: Header) -> bytes:
    """The mark of a batch, empty for none; WireError if it is not valid."""
    mark = header.get("mark", b"")
    if not isinstance(mark, bytes) or len(mark) > MAX_MARK_BYTES:
        problem = f"field 'mark' must be at most {MAX_MARK_BYTES} bytes"
        raise WireError(Reason.MALFORMED, problem)
    return mark


def keys_of(header: Header) -> Header:
    """The producer, epoch and sequence of a message, as far as they can be read."""
    keys: Header = {}
    with suppress(WireError):
        keys["producer"] = text(header, "producer")
        keys["epoch"] = integer(header, "epoch")
        keys["seq"] = integer(header, "seq", 1)
    return keys
