"""Decide what to do with reads during sequencing, from their first bases.

on target, enrich    the target is listed    stop_receiving: sequence all of it
                     it is another one       unblock: it is not worth sequencing
on target, deplete   the target is listed    unblock
                     it is another one       stop_receiving
unassigned           not long enough yet     proceed: look again once it is longer
                     give_up_bases or more   enrich: unblock, deplete: stop_receiving
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamer.dictionary.target_sets import check_kmers, unknown_names
from streamer.dictionary.targets import Dictionary
from streamer.errors import StreamerError
from streamer.matching.matcher import StreamMatcher
from streamer.matching.reports import Assignment
from streamer.protocol.schema import ACTIONS
from streamer.sequences.read_batch import ReadBatch, chosen_batch

PROCEED, STOP_RECEIVING, UNBLOCK = range(len(ACTIONS))


@dataclass(frozen=True, slots=True)
class DecisionRule:
    """Which reads to sequence: those of the targets ``enrich``, or all but those of ``deplete``.

    Exactly one of the two has names. first_bases: how many leading symbols of a read count.
    give_up_bases: the length at which an unassigned read is decided, too; 0 means never.
    """

    enrich: tuple[str, ...]
    deplete: tuple[str, ...]
    rule: Assignment
    first_bases: int
    give_up_bases: int


class Decisions(NamedTuple):
    """The decision on each read of a batch.

    action: uint8, an index into ``schema.ACTIONS``. target: int32, its index, -1 if unassigned.
    bases: int64, how many symbols were examined. matches, windows: int64, among those: windows that
    match the best target, and windows without a gap code.
    """

    action: NDArray[np.uint8]
    target: NDArray[np.int32]
    matches: NDArray[np.int64]
    windows: NDArray[np.int64]
    bases: NDArray[np.int64]


class Decider:
    """Decides by a dictionary that does not change; counts and learns nothing.

    matcher: a fixed, exact one of that dictionary, which may be shared; None to create one, which
    ``close`` then closes. Raises StreamerError for a name that no target with k-mers has.
    """

    def __init__(
        self, dictionary: Dictionary, rule: DecisionRule, matcher: StreamMatcher | None = None
    ) -> None:
        names = dictionary.targets.names
        self._rule = rule
        self.targets = dictionary.targets
        listed = rule.enrich or rule.deplete
        key = "enrich" if rule.enrich else "deplete"
        if missing := unknown_names(listed, dictionary.targets):
            raise StreamerError(f"decision.{key}: the dictionary has no target called {missing}")
        check_kmers(listed, dictionary.targets, dictionary.k, f"decision.{key}")
        yes, no = (STOP_RECEIVING, UNBLOCK) if rule.enrich else (UNBLOCK, STOP_RECEIVING)
        wanted = set(listed)
        # by target; the last element, index -1, serves unassigned reads
        by_target = [yes if name in wanted else no for name in names]
        self._actions = np.array([*by_target, PROCEED], np.uint8)
        self._given_up = UNBLOCK if rule.enrich else STOP_RECEIVING
        self._matcher = matcher or StreamMatcher.of(dictionary, device="cpu")
        self._owned = matcher is None

    def decide(self, batch: ReadBatch) -> Decisions:
        """Decide on reads from the bases known so far."""
        lengths = batch.lengths
        heads = chosen_batch(batch, np.arange(lengths.size), self._rule.first_bases)
        (result,) = self._matcher.match([heads], in_stream=False)
        target, matches, windows = self._rule.rule.assign(result, self.targets)
        action = self._actions[target]
        if self._rule.give_up_bases:
            action[(target < 0) & (lengths >= self._rule.give_up_bases)] = self._given_up
        return Decisions(action, target, matches, windows, heads.lengths)

    def close(self) -> None:
        """Stop the threads of the matcher created here."""
        if self._owned:
            self._matcher.close()
