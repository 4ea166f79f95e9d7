"""Find which records of a file have been sent, from this file or from a copy."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from streamer.errors import DataError
from streamer.sequences.read_batch import ReadBatch
from streamer.watching.digest import Digest
from streamer.watching.ledger import Visit


class Beginning(NamedTuple):
    """The known records that a file begins with.

    longest: the known visit with the most records that the file begins with, if any. total: digest
    of all records of the file, if it ended before some of the known visits, which are ``longer``.
    fault: what is wrong after these records.
    """

    longest: Visit | None
    total: Digest
    longer: list[Visit]
    fault: DataError | None


def sent_before(batches: Iterable[ReadBatch], known: list[Visit]) -> Beginning:
    """Find which of the visits ``known``, which share its first record, a file begins with.

    batches: all records of the file.
    """
    at, longest = Digest(), None
    try:
        for reads in batches:
            left = []
            for visit in known:
                count = visit.sent.records - at.records
                if count > len(reads):
                    left.append(visit)
                elif at.after(reads, count) == visit.sent and (
                    longest is None or visit.sent.records > longest.sent.records
                ):
                    longest = visit
            at, known = at.after(reads), left
            if not known:
                break
    except DataError as error:
        return Beginning(longest, at, known, error)
    return Beginning(longest, at, known, None)


def begins_with(batches: Iterable[ReadBatch], sent: Digest, part: Digest) -> bool | None:
    """Return whether the records of ``sent`` begin with those of ``part``; None if unknown.

    batches: of a file that had the records of ``sent`` at the time, but may have changed since.
    """
    at, begins = Digest(), None
    try:
        for reads in batches:
            count = part.records - at.records
            if 0 < count <= len(reads):
                begins = at.after(reads, count) == part
            count = sent.records - at.records
            if count <= len(reads):
                return begins if at.after(reads, count) == sent else None
            at = at.after(reads)
    except (DataError, OSError):
        # no proof either way
        pass
    return None
