"""The position of a consumer of the feed: which messages it has, and what it stores to resume."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from streamer.errors import StreamerError

_MOST = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Cursor:
    """A position in a stream: everything up to record ``at`` was received.

    ahead: topics with later messages that were received, too, each with the record of the last
    one. If the effects of a message and the cursor after it are stored together, each message takes
    effect once.
    """

    stream: str
    at: int
    ahead: Mapping[str, int] = field(default_factory=dict)

    def to_json(self) -> str:
        """One line."""
        return json.dumps({"stream": self.stream, "at": self.at, "ahead": dict(self.ahead)}) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Cursor:
        """The cursor that ``to_json`` wrote; StreamerError if it is not one."""
        try:
            fields = json.loads(text)
            found = cls(str(fields["stream"]), fields["at"], dict(fields.get("ahead", {})))
            numbers = [found.at, *found.ahead.values()]
        except (ValueError, TypeError, KeyError, RecursionError):
            numbers = []
        if not numbers or any(type(n) is not int or not 0 <= n <= _MOST for n in numbers):
            message = "not a cursor"
            raise StreamerError(message)
        return found


class Positions:
    """By topic, the record up to which all messages were received.

    last: the last message of each topic, or a later record up to which all was ``complete``.
    """

    def __init__(self, topics: Iterable[str], cursor: Cursor) -> None:
        self.stream = cursor.stream
        self.last = {topic: max(cursor.at, cursor.ahead.get(topic, 0)) for topic in topics}
        self._at = cursor.at

    @property
    def at(self) -> int:
        """Everything up to this record was received."""
        return max(self._at, min(self.last.values(), default=0))

    @property
    def cursor(self) -> Cursor:
        """The positions as a cursor, to be stored."""
        at = self.at
        return Cursor(self.stream, at, {t: last for t, last in self.last.items() if last > at})

    def message(self, topic: str, at: int) -> None:
        """The next message of a topic, about record ``at``, was received."""
        if topic in self.last:
            self.last[topic] = at

    def passed(self, at: int) -> None:
        """Nothing up to record ``at`` will still come; ``last`` shows what was skipped."""
        self._at = max(self._at, at)

    def complete(self, at: int) -> None:
        """Nothing up to record ``at`` is missing."""
        self.passed(at)
        for topic, last in self.last.items():
            self.last[topic] = max(last, at)
