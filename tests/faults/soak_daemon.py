"""The daemon as users start it, except that files, snapshots and retention come sooner.

    python -m tests.faults.soak_daemon SHRINK run ...

Data files of the journal and the bytes between two snapshots are ``SHRINK`` times smaller than by
default, so that retention deletes files every minute instead of every hour. By the same factor
fewer checksums of batches are remembered, so that their memory is full within minutes instead of
two hours. 1 changes nothing.
"""

from __future__ import annotations

import sys
from functools import partialmethod

from tests.faults.nursery import die_with_parent

SHIPPED_FILE_BYTES = 256 << 20


def _shrink(times: int) -> None:
    from streamer.daemon.core import ingest
    from streamer.daemon.core.log import SNAPSHOT_AFTER, LogCore
    from streamer.journal.data_files import Sizes

    _, *others = Sizes.__new__.__defaults__ or ()
    Sizes.__new__.__defaults__ = (SHIPPED_FILE_BYTES // times, *others)
    ingest.MAX_CONTENTS //= times
    after = SNAPSHOT_AFTER._replace(bytes=SNAPSHOT_AFTER.bytes // times)
    LogCore.__init__ = partialmethod(LogCore.__init__, snapshot_after=after)  # type: ignore


if __name__ == "__main__":
    # if the soak is killed, its daemon is killed, too
    die_with_parent()
    times = int(sys.argv.pop(1))
    if times > 1:
        _shrink(times)
    from streamer.__main__ import run

    run()
