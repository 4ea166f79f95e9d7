"""The last record with a message on each topic."""

from collections.abc import Iterable, Mapping


class Heads:
    """By topic, the number of the last record that has a message on it; 0 before the first.

    The numbers depend on the stream alone, not on subscribers or restarts.
    """

    def __init__(self, heads: Mapping[str, int] | None = None) -> None:
        self._heads = dict(heads or {})

    def take(self, at: int, topics: Iterable[str]) -> dict[str, int]:
        """The heads of the topics before record ``at``, which has messages on them."""
        before = {topic: self._heads.get(topic, 0) for topic in topics}
        self._heads |= dict.fromkeys(before, at)
        return before

    def all(self) -> dict[str, int]:
        """The heads of all topics that had a message."""
        return dict(self._heads)
