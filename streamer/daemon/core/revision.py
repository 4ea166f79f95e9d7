"""Which kept batches must still be matched again with a new dictionary, and when.

The daemon and a restart report the same records in the same order, so a revision continues after a
restart from what is committed. Kept batches are matched, oldest first, when no new batch waits, and
for a share of the time when one always does.
"""

from typing import NamedTuple

SHARE = 0.1
"""The share of the time that a revision may take while new batches wait."""

# seconds of unused share that a revision may save up
_MOST_SAVED = 0.2


class Revision(NamedTuple):
    """Kept batches get the answers of another dictionary.

    version: that of the dictionary. before: the record that introduced it; batches recorded before
    it are matched again. batch: number of the first batch after it. after: the record up to which
    this is done.
    """

    version: int
    before: int
    batch: int
    after: int = 0


class RevisionCore:
    """The revision in progress, if there is one; times are in seconds."""

    def __init__(self, revision: Revision | None = None) -> None:
        self.revision = revision
        self._saved = 0.0

    # ---- events ---------------------------------------------------------------------------------

    def reloaded(self, version: int, at: int, batch: int) -> None:
        """Record ``at`` introduces another dictionary; a revision in progress starts over.

        batch: number of the next batch.
        """
        self.revision = Revision(version, at, batch)
        self._saved = 0.0

    def revised(self, at: int) -> None:
        """The batches recorded up to ``at`` have been matched again."""
        if self.revision is not None:
            self.revision = self.revision._replace(after=max(at, self.revision.after))

    def settled(self) -> None:
        """The revision is over."""
        self.revision = None

    # ---- what to do -----------------------------------------------------------------------------

    def due(self, oldest: int, head: int) -> tuple[int, int] | None:
        """The records whose batches are next: those after the first number up to the second.

        oldest, head: the first and last record in the journal. An empty range: settle the revision.
        None: there is nothing to do, or the new dictionary is not recorded yet.
        """
        if self.revision is None or head < self.revision.before:
            return None
        last = self.revision.before - 1
        return min(max(self.revision.after, oldest - 1), last), last

    # ---- scheduling -----------------------------------------------------------------------------

    def waited(self, seconds: float) -> None:
        """The revision has waited while other batches were matched."""
        self._saved = min(_MOST_SAVED, self._saved + SHARE * seconds)

    def may_go_on(self, *, waiting: bool) -> bool:
        """Whether to match kept batches now; waiting: whether new batches wait."""
        return not waiting or self._saved > 0

    def took(self, seconds: float, *, waiting: bool) -> None:
        """Kept batches were matched for this long."""
        if waiting:
            self._saved -= seconds
