"""The targets of reads and pairs, from no more matches than these need.

Where all k-mers are of one target, further matches can only add to a share that is enough. So reads
are first compared with the text around one window in 128, of pairs only the first mates. Most reads
of the target are assigned then; the others are matched completely. The targets are those of
complete matches.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from streamer.matching.matcher import StreamMatcher
from streamer.matching.reports import Assignment
from streamer.matching.result import BatchResult
from streamer.sequences.read_batch import ReadBatch, chosen_batch

Targets = NDArray[np.int32]
"""The target index of each read, or of each pair; -1 if unassigned."""


def assigned(
    matcher: StreamMatcher, rule: Assignment, results: Sequence[BatchResult], *, together: bool
) -> list[Targets]:
    """The targets of the reads of each result, or, ``together``, those of the pairs.

    results: of R1 and R2, or one, in which mates follow each other.
    """
    targets = matcher.dictionary.targets
    if together:
        both = matcher.dictionary.strands != "forward"
        return [rule.assign_pairs(results, targets, both=both)]
    return [rule.targets_of(result, targets) for result in results]


def assigned_reads(
    matcher: StreamMatcher, rule: Assignment, batches: Sequence[ReadBatch], *, together: bool
) -> list[Targets]:
    """As ``assigned``, of batches that are matched here, outside the stream."""
    if not together and len(batches) > 1:
        return [assigned_reads(matcher, rule, [batch], together=False)[0] for batch in batches]
    first = matcher.match_in_part(batches[0], settles=False)
    if first is None:
        results = [matcher.match([batch], in_stream=False)[0] for batch in batches]
        return assigned(matcher, rule, results, together=together)
    others = [matcher.match_in_part(one, seeks=False, settles=False) for one in batches[1:]]
    early = [first, *filter(None, others)]
    (found,) = assigned(matcher, rule, early, together=together)
    left = np.flatnonzero(found < 0)
    if left.size:
        mates = len(batches[0]) // found.size  # that follow each other
        reads = (mates * left[:, None] + np.arange(mates)).ravel()
        rest = [chosen_batch(batch, reads) for batch in batches]
        late = [*filter(None, (matcher.match_in_part(batch, seeks=False) for batch in rest))]
        (found[left],) = assigned(matcher, rule, late, together=together)
    return [found]
