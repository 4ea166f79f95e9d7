"""From which batch on a revision counts, where the journal keeps only some."""

from __future__ import annotations

from types import SimpleNamespace

import msgpack
import pytest

from streamer.daemon.core.revision import Revision
from streamer.daemon.revising import KeptBatches
from streamer.daemon.stored_messages import BATCH
from streamer.journal.record import Record


def journal(oldest: int, batches: dict[int, int], head: int = 9) -> SimpleNamespace:
    """Of records that say nothing but for batches, by record the number of each."""
    records = []
    for at in range(oldest, head + 1):
        meta = {"about": {"batch": batches.get(at)}, "counts": {}, "topics": []}
        kind = BATCH if at in batches else "other"
        records.append(Record(at, kind, msgpack.packb(meta), (), None, 0))
    return SimpleNamespace(
        oldest=oldest,
        head=head,
        records=lambda after, until=head: (r for r in records if after < r.at <= until),
    )


@pytest.mark.parametrize(
    ("kept", "first"),
    [
        (journal(1, {2: 0, 3: 1, 9: 5}), 0),
        (journal(3, {2: 0, 3: 1, 9: 5}), 1),
        # all batches before the new dictionary have gone: nothing of theirs was matched again
        (journal(5, {2: 0, 3: 1, 9: 5}), 5),
        (journal(5, {2: 0, 3: 1}), 5),
    ],
)
def test_a_revision_is_settled_from_the_first_batch_that_is_kept(kept, first):
    revision = Revision(version=4, before=8, batch=5, after=7)
    matcher = SimpleNamespace(version=4)
    step = KeptBatches(kept).revise(revision, (7, 7), 10, matcher, None)
    (settled,) = step.drafts
    assert settled.contents["settled"].fields == {"version": 4, "from_batch": first}
