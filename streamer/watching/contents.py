"""Which records of a file have been sent: of this file before, or of another one that is a copy."""

from __future__ import annotations

from collections.abc import Iterable

from streamer.errors import DataError
from streamer.sequences.read_batch import ReadBatch
from streamer.watching.digest import Digest
from streamer.watching.ledger import Visit


def sent_before(batches: Iterable[ReadBatch], known: list[Visit]) -> tuple[Visit | None, bool]:
    """That of the contents whose records the file begins with, the longest; None for none.

    batches: all records of the file. known: contents that begin with its first record. Then,
    whether it ends before one of them does, so that it may be no more than a part of it.
    """
    at, longest = Digest(), None
    try:
        for reads in batches:
            left = []
            for content in known:
                count = content.sent.records - at.records
                if count > len(reads):
                    left.append(content)
                elif at.after(reads, count) == content.sent and (
                    longest is None or content.sent.records > longest.sent.records
                ):
                    longest = content
            at, known = at.after(reads), left
            if not known:
                break
    except DataError:
        # whoever reads it next comes to the same place
        pass
    return longest, longest is None and bool(known)
