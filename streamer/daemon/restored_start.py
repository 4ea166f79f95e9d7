"""The state that a daemon starts with, from its journal; losses are reported and stored."""

from __future__ import annotations

import structlog

from streamer.daemon.core.log import SNAPSHOT_AFTER
from streamer.daemon.restore import Restored, put_snapshot, restore
from streamer.journal.journal_errors import JournalFull
from streamer.journal.store import Journal

log = structlog.get_logger("daemon")


def restored_of(journal: Journal | None) -> Restored:
    """The state after the journal's last record; without a journal, that of a new daemon.

    A loss is stored with the state. JournalError if the state cannot be read; the journal is then
    closed.
    """
    if journal is None:
        return Restored()
    try:
        restored = restore(journal)
        if restored.loss:
            lost = str(restored.loss)
            message = "k-mers were given up: the stream or the sources may bring them again"
            log.warning(message, kmers=lost)
            # from here on the loss is part of the state
            try:
                put_snapshot(journal)
            except JournalFull as error:
                log.error("the state cannot be stored: it is tried again", why=str(error))
                restored.replayed = [most + 1 for most in SNAPSHOT_AFTER]
        return restored
    except BaseException:
        journal.close()
        raise
