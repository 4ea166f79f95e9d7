"""Decisions in the daemon: on the reads of batches, and on reads that clients ask about."""

from collections import deque
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from streamer.daemon.batch_record import Accepted
from streamer.daemon.config import Config
from streamer.daemon.core.producers import NOTHING_DECIDED
from streamer.daemon.publish import decision_content
from streamer.matching.decisions import PROCEED, Decider, DecisionRule
from streamer.matching.matcher import StreamMatcher
from streamer.matching.reports import Assignment
from streamer.protocol.payloads import Columns, describe
from streamer.protocol.wire import Buffer, Header, Reason, WireError, raw
from streamer.sequences.read_batch import ReadBatch

_WAITING = 256
"""The most requests whose reads wait to be decided on."""

_DECIDED = 1 << 16
"""The most growing reads to remember; a sequencer has a few thousand channels."""

Answer = Callable[[Header | WireError, Sequence[Buffer]], None]
"""Takes the header fields and frames of a reply, or the reason why there is none."""


class _Decided:
    """The growing reads that were decided on, by name and channel; the oldest ones are dropped."""

    def __init__(self) -> None:
        self._reads: dict[tuple[str, int], None] = {}

    def rows(
        self, batch: ReadBatch, actions: NDArray[np.uint8], *, grow: bool
    ) -> NDArray[np.int64]:
        """The indices of the reads that were not decided on before; remembers those that ``grow``.

        A read that is complete is forgotten. A read that is sent again and again is not, however
        many others come and go meanwhile.
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
                # move it to the end, as the latest
                del known[key]
            else:
                rows.append(row)
                if actions[row] == PROCEED:
                    continue
            known[key] = None
        while len(known) > _DECIDED:
            del known[next(iter(known))]
        return np.array(rows, dtype=np.int64)


class DecisionStage:
    """Decides with the dictionary of the matcher last given to ``use``.

    All methods but ``ask`` are called in the engine's thread.
    """

    def __init__(self, config: Config) -> None:
        self._rule = _rule(config)
        self._decider: Decider | None = None
        self._version = 0
        self._asked: deque[tuple[ReadBatch, Answer]] = deque()
        self._decided = _Decided()

    @property
    def on(self) -> bool:
        """Whether reads are decided on."""
        return self._rule is not None

    def use(self, matcher: StreamMatcher) -> None:
        """Decide with the matcher's dictionary; StreamerError if it lacks a named target.

        A growing dictionary decides by the k-mers that it began with.
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
        """The decisions on the reads of a batch, or on its growing reads, as in its message.

        A growing read that was decided on before gets no further row.
        """
        if self._decider is None:
            return None
        growing = item.growing
        batch = item.batch if growing is None else growing.batch
        decisions = self._decider.decide(batch)
        rows = self._decided.rows(batch, decisions.action, grow=growing is not None)
        return decision_content(batch, decisions, self._decider.targets, rows)

    def _decide(self, batch: ReadBatch) -> tuple[Header, Columns]:
        assert self._decider is not None
        decisions, rows = self._decider.decide(batch), np.arange(len(batch))
        return decision_content(batch, decisions, self._decider.targets, rows)

    def ask(self, batch: ReadBatch, answer: Answer) -> None:
        """Queue these reads to be decided on; from any thread.

        WireError if the daemon decides nothing, or too many requests wait.
        """
        if self._rule is None:
            raise WireError(Reason.DENIED, NOTHING_DECIDED)
        if len(self._asked) >= _WAITING:
            raise WireError(Reason.BUSY, f"{_WAITING} requests wait for decisions: ask again later")
        self._asked.append((batch, answer))

    def answer(self) -> None:
        """Decide on the queued reads, and reply."""
        while self._asked:
            batch, answer = self._asked.popleft()
            fields, columns = self._decide(batch)
            fields |= {"version": self._version, "columns": describe(columns)}
            answer(fields, [raw(values) for values in columns.values()])

    def close(self) -> None:
        """Refuse the queued requests."""
        while self._asked:
            gone = WireError(Reason.DRAINING, "the daemon ends: nothing is decided any more")
            _, answer = self._asked.popleft()
            answer(gone, ())
        if self._decider is not None:
            self._decider.close()


def _rule(config: Config) -> DecisionRule | None:
    table = config.decision
    if not table.names:
        return None
    assignment = Assignment(table.min_windows, table.min_fraction)
    names = tuple(table.enrich), tuple(table.deplete)
    return DecisionRule(*names, assignment, table.first_bases, table.give_up_bases)
