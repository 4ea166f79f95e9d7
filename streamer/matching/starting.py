"""The starting state of a match: its dictionary, and where in the stream it resumes."""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from streamer.dictionary.targets import Dictionary
from streamer.matching.match_engine import NO_CODES
from streamer.matching.spec import MatchSpec
from trie.cpu.team import Team


@dataclass(frozen=True, slots=True)
class Start:
    """Where a matcher begins: after ``number`` batches and ``position`` symbols of the stream.

    version: of the dictionary. grown: uint64, the k-mers that the stream added. learned: uint64,
    k-mers, as stored, that a distance is measured to, as in ``BatchResult``. Both in any order.
    """

    number: int = 0
    position: int = 0
    version: int = 1
    grown: NDArray[np.uint64] = field(default_factory=lambda: NO_CODES)
    learned: NDArray[np.uint64] = field(default_factory=lambda: NO_CODES)


def load_dictionary(
    spec: MatchSpec,
    *,
    as_stored: bool = False,
    on_notice: Callable[[str], None] | None = None,
    team: Team | None = None,
) -> Dictionary:
    """Load the initial dictionary of a StreamMatcher.

    as_stored: k-mers as they stand in the records; always so for a distance. on_notice: called with
    one line about a saved dictionary that lacks targets. team: the threads that build it.
    """
    as_stored = as_stored or spec.near
    if not spec.sources:
        return Dictionary.empty(spec.k, "forward" if as_stored else spec.strands)
    return Dictionary.from_files(
        spec.sources, spec.k, spec.strands, targets=spec.targets or None,
        target_by=spec.target_by, as_stored=as_stored, on_notice=on_notice, team=team,
    )  # fmt: skip


def known_dictionary(dictionary: Dictionary, spec: MatchSpec) -> Dictionary:
    """Derive the dictionary of exact matching from the initial one."""
    if spec.exact:
        return dictionary.known_as(spec.strands)
    if spec.changes:
        # exact matching only finds new k-mers here; no target is reported
        return dictionary.without_targets(spec.strands)
    return Dictionary(dictionary.index, dictionary.grown, strands=spec.strands)
