"""Decisions in the daemon: on the reads of batches, and on those that clients ask about."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamer.daemon.batch_record import Accepted
from streamer.daemon.config import Config
from streamer.daemon.core.offers import NOTHING_DECIDED
from streamer.daemon.publish import decision_content
from streamer.matching.assignment import Assignment
from streamer.matching.decisions import PROCEED, Decider, DecisionRule
from streamer.matching.matcher import StreamMatcher
from streamer.protocol.feed_messages import Columns, describe
from streamer.protocol.header import Buffer, Header, Reason, WireError, raw
from streamer.sequences.read_batch import ReadBatch

_WAITING = 256
"""Requests whose reads wait to be decided on."""

_DECIDED = 1 << 16
"""Reads that still grow; a sequencer has a few thousand channels."""

Answer = Callable[[Header | WireError, Sequence[Buffer]], None]
"""Takes the keys and the frames of a reply, or why there is none."""


class _Ask(NamedTuple):
    batch: ReadBatch
    answer: Answer


class _Decided:
    """Reads that were decided on while they grew, by name and channel: those sent last."""

    def __init__(self) -> None:
        self._reads: dict[tuple[str, int], None] = {}

    def rows(
        self, batch: ReadBatch, actions: NDArray[np.uint8], *, grow: bool
    ) -> NDArray[np.int64]:
        """The indices of the reads of which nothing was decided before; notes those that ``grow``.

        A read that grows no more is forgotten. One that keeps being sent is not, however many come
        and go meanwhile.
        """
        count = len(batch)
        if not (grow or self._reads):
            return np.arange(count)
        context = batch.context
        channels = [-1] * count if context is None else context.channel.tolist()
        keys, known = list(zip(batch.names, channels, strict=True)), self._reads
        if not grow:
            rows = [row for row, key in enumerate(keys) if key not in known]
            for key in keys:
                known.pop(key, None)
            return np.array(rows, dtype=np.int64)
        rows = []
        for row, key in enumerate(keys):
            if key in known:
                # behind those that were sent before it
                del known[key]
            else:
                rows.append(row)
                if actions[row] == PROCEED:
                    continue
            known[key] = None
        while len(known) > _DECIDED:
            del known[next(iter(known))]
        return np.array(rows, dtype=np.int64)


class Deciding:
    """Decides with the dictionary of the matcher that was last given to ``use``.

    All but ``ask`` is called in the engine's thread.
    """

    def __init__(self, config: Config) -> None:
        self._rule = _rule(config)
        self._decider: Decider | None = None
        self._version = 0
        self._asked: deque[_Ask] = deque()
        self._decided = _Decided()

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

    def decide_batch(self, item: Accepted) -> tuple[Header, Columns] | None:
        """What the message about a batch says of its reads, or of those that still grow.

        A read that grows and was decided on before has no row any more.
        """
        if self._decider is None:
            return None
        growing = item.growing
        batch = item.batch if growing is None else growing.batch
        found = self._decider.decide(batch)
        rows = self._decided.rows(batch, found.action, grow=growing is not None)
        return decision_content(batch, found, self._decider.targets, rows)

    def _decide(self, batch: ReadBatch) -> tuple[Header, Columns]:
        assert self._decider is not None
        found, rows = self._decider.decide(batch), np.arange(len(batch))
        return decision_content(batch, found, self._decider.targets, rows)

    def ask(self, batch: ReadBatch, answer: Answer) -> None:
        """Have these reads decided on soon; from any thread.

        WireError if nothing is decided here, or too much waits.
        """
        if self._rule is None:
            raise WireError(Reason.DENIED, NOTHING_DECIDED)
        if len(self._asked) >= _WAITING:
            problem = f"{_WAITING} requests wait for decisions: ask again later"
            raise WireError(Reason.BUSY, problem)
        self._asked.append(_Ask(batch, answer))

    def answer(self) -> None:
        """Decide on what was asked about."""
        while self._asked:
            ask = self._asked.popleft()
            fields, columns = self._decide(ask.batch)
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
