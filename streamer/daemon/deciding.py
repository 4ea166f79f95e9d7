"""Decisions in the daemon: on the reads of batches, and on those that clients ask about."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

from streamer.daemon.config import Config
from streamer.daemon.publish import decision_content
from streamer.matching.assignment import Assignment
from streamer.matching.decisions import Decider, DecisionRule
from streamer.matching.matcher import StreamMatcher
from streamer.protocol.feed_messages import Columns, describe
from streamer.protocol.header import Buffer, Header, Reason, WireError, raw
from streamer.sequences.read_batch import ReadBatch

_WAITING = 256
"""Requests whose reads wait to be decided on."""

Answer = Callable[[Header | WireError, Sequence[Buffer]], None]
"""Takes the keys and the frames of a reply, or why there is none."""


class _Ask(NamedTuple):
    batch: ReadBatch
    answer: Answer


class Deciding:
    """Decides with the dictionary of the matcher that was last given to ``use``.

    All but ``ask`` is called in the engine's thread.
    """

    def __init__(self, config: Config) -> None:
        self._rule = _rule(config)
        self._decider: Decider | None = None
        self._version = 0
        self._asked: deque[_Ask] = deque()

    @property
    def on(self) -> bool:
        """Whether reads are decided on."""
        return self._rule is not None

    def use(self, matcher: StreamMatcher) -> None:
        """Decide with the matcher's dictionary; StreamerError if a name is not in it.

        A dictionary that grows decides by the k-mers that it began with.
        """
        if self._rule is None:
            return
        spec = matcher.spec
        if spec.exact and not spec.changes:
            decider = Decider(matcher.dictionary, self._rule, matcher)
        else:
            decider = Decider(matcher.stored.known_as(spec.strands), self._rule)
        if self._decider is not None:
            self._decider.close()
        self._decider, self._version = decider, matcher.version

    def decide(self, batch: ReadBatch) -> tuple[Header, Columns] | None:
        """What a message says of the reads of a batch."""
        if self._decider is None:
            return None
        return decision_content(batch, self._decider.decide(batch), self._decider.targets)

    def ask(self, batch: ReadBatch, answer: Answer) -> None:
        """Have these reads decided on soon; from any thread. WireError if that cannot be."""
        if self._rule is None:
            problem = "nothing is decided: name targets in decision.enrich or decision.deplete"
            raise WireError(Reason.DENIED, problem)
        if len(self._asked) >= _WAITING:
            problem = f"{_WAITING} requests wait for decisions: ask again later"
            raise WireError(Reason.BUSY, problem)
        self._asked.append(_Ask(batch, answer))

    def answer(self) -> None:
        """Decide on what was asked about."""
        while self._asked:
            ask = self._asked.popleft()
            said = self.decide(ask.batch)
            assert said is not None
            fields, columns = said
            fields |= {"version": self._version, "columns": describe(columns)}
            ask.answer(fields, [raw(values) for values in columns.values()])

    def close(self) -> None:
        """Refuse what was asked."""
        while self._asked:
            gone = WireError(Reason.DRAINING, "the daemon ends: nothing is decided any more")
            self._asked.popleft().answer(gone, ())
        if self._decider is not None:
            self._decider.close()


def _rule(config: Config) -> DecisionRule | None:
    table = config.decision
    if not table.names:
        return None
    assignment = Assignment(table.min_windows, table.min_fraction)
    names = tuple(table.enrich), tuple(table.deplete)
    return DecisionRule(*names, assignment, table.first_bases, table.give_up_bases)
