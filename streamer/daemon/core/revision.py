"""Which kept batches are still to be matched again with a new dictionary, and when.

The daemon and a restart tell it of the same records in the same order, so that a revision goes on
after a restart from what is committed. Kept batches have their turn, oldest first, when no other
batch waits, and a share of the time when there always is one.
"""

from __future__ import annotations

from typing import NamedTuple

SHARE = 0.1
"""Of the time of batches that wait, what a revision may take beside them."""

# seconds that it may save up
_MOST_SAVED = 0.2


class Revision(NamedTuple):
    """Kept batches get the answers of another dictionary.

    version: of that. before: the record that it came with; the batches recorded before that one are
    matched again. batch: number of the first batch behind it. after: up to which record that is
    done.
    """

    version: int
    before: int
    batch: int
    after: int = 0


class RevisionCore:
    """The revision that is under way, if there is one; times are in seconds."""

    def __init__(self, revision: Revision | None = None) -> None:
        self.revision = revision
        self._saved = 0.0

    # ---- what has happened ----------------------------------------------------------------------

    def reloaded(self, version: int, at: int, batch: int) -> None:
        """Record ``at`` has another dictionary; a revision that was under way begins anew.

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

    # ---- what is to be done ---------------------------------------------------------------------

    def due(self, oldest: int, head: int) -> tuple[int, int] | None:
        """The records whose batches are next: those after the first number up to the second.

        oldest, head: of those that are kept. No record between the two: the revision is to be
        settled. None: there is nothing to do, or the new dictionary is not recorded yet.
        """
        if self.revision is None or head < self.revision.before:
            return None
        last = self.revision.before - 1
        return min(max(self.revision.after, oldest - 1), last), last

    # ---- whose turn it is -----------------------------------------------------------------------

    def waited(self, seconds: float) -> None:
        """The revision has waited while other batches were matched."""
        self._saved = min(_MOST_SAVED, self._saved + SHARE * seconds)

    def may_go_on(self, *, waiting: bool) -> bool:
        """Whether it is the turn of kept batches; waiting: others are there."""
        return not waiting or self._saved > 0

    def took(self, seconds: float, *, waiting: bool) -> None:
        """Kept batches had their turn."""
        if waiting:
            self._saved -= seconds
