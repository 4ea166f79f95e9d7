"""The engine as a model: a toy matcher, reloads, and kept batches matched again.

It does what ``streamer.daemon.engine`` does, with the same cores, control records and kept batches.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, cast

from streamer.daemon.batch_record import Accepted, Matched
from streamer.daemon.kept_batches import KeptBatches
from streamer.daemon.publish import ControlRecord, Group, dictionary_record, settled_record
from streamer.daemon.restore import Restored, fingerprint
from streamer.dictionary.targets import Dictionary
from streamer.matching.matcher import StreamMatcher
from streamer.matching.spec import MatchSpec
from tests.simulation.clock import Pause, Steps
from tests.simulation.daemon_threads import POLL_SECONDS, DaemonThread
from tests.simulation.single_pass import K, ToyMatcher, dictionary_of

if TYPE_CHECKING:
    from tests.simulation.daemon_host import DaemonHost

# groups matched ahead of the log
_AHEAD = 3
# seconds to load a dictionary, to match a group, to match kept batches again
_LOAD, _MATCH, _AGAIN = 0.05, 0.003, 0.005


class EngineThread(DaemonThread):
    """Matches batches; waiting batches form a group. settled: no revision is in progress."""

    def __init__(self, daemon: DaemonHost, restored: Restored, kept: KeptBatches) -> None:
        super().__init__(daemon)
        self.ready = False
        self.slots = _AHEAD
        self._grows, self._limit = daemon.site.grows, daemon.site.max_kmers
        self._spec = MatchSpec(k=K, mode="grow" if self._grows else "frozen", strands="forward")
        self._restored = restored
        self._revision = restored.core
        self._at = restored.at
        self._heads = dict(restored.heads)
        self._kept = kept
        self._reloaded: deque[Dictionary] = deque()
        # groups that the log does not have yet
        self._drafted = 0

    @property
    def settled(self) -> bool:
        """Whether all kept batches have the answers of the last dictionary."""
        return self._revision.revision is None and not self._reloaded and not self._drafted

    def reload(self) -> None:
        """Read the dictionary's files again, and use the result from the next batch on."""
        codes = self.daemon.site.sources

        def loaded() -> None:
            self._reloaded.append(dictionary_of(codes))
            self.wake()

        self.daemon.after(self.step(_LOAD), loaded)

    def release(self) -> None:
        """The results of a group are out."""
        self.slots += 1
        self.wake()

    # ---- the thread -------------------------------------------------------------------------

    def work(self) -> Steps:
        dictionary = dictionary_of(self.daemon.site.sources)
        yield self.step(_LOAD)
        yield from self._begin(dictionary)
        self.ready = True
        self.daemon.main.wake()
        while not self.stopping:
            yield self.idle(busy=self._place() or self._reloaded)
            while self._reloaded:
                yield from self._switch(self._reloaded.popleft())
            if self.inbox:
                items: list[Accepted] = [*self.inbox]
                self.inbox.clear()
                yield from self._match(items)
            yield from self._revise(waiting=bool(self.inbox))

    def _slot(self) -> Steps:
        while not self.slots and not self.stopping:
            yield Pause(POLL_SECONDS)
        self.slots -= 1

    def _match(self, items: list[Accepted]) -> Steps:
        yield from self._slot()
        if self.stopping:
            return
        seconds = self.step(_MATCH)
        yield seconds
        self._revision.waited(seconds)
        matched = []
        for item in items:
            self._at += 1
            (result,) = self._matcher.match([item.batch])
            if self._grows and result.new_kmers.size:
                self._restored.grown.append(result.new_kmers)
            matched.append(Matched(self._at, item, result, self._matcher.dictionary))
        self.daemon.log.put(Group(self._heads, matched))

    # ---- dictionaries -----------------------------------------------------------------------

    def _begin(self, loaded: Dictionary) -> Steps:
        restored, found = self._restored, fingerprint(loaded)
        start = restored.start(self._spec)
        first = not restored.fingerprint and not restored.number
        changed = found != restored.fingerprint
        if changed and not first:
            start = replace(start, version=start.version + 1)
        self._matcher = ToyMatcher(loaded, start, grows=self._grows, limit=self._limit)
        if first:
            yield from self._say([self._dictionary(loaded, found)])
        elif changed:
            yield from self._replaced(loaded, found)

    def _switch(self, loaded: Dictionary) -> Steps:
        before, found = self._matcher, fingerprint(loaded)
        if found == self._restored.fingerprint:
            return
        start = replace(self._restored.start(self._spec), version=before.version + 1)
        self._matcher = ToyMatcher(loaded, start, grows=self._grows, limit=self._limit)
        self._matcher.succeed(before)
        yield from self._replaced(loaded, found)

    def _replaced(self, loaded: Dictionary, found: int) -> Steps:
        control_record = self._dictionary(loaded, found)
        version, batch = self._matcher.version, control_record.meta["batch"]
        self.daemon.note(f"has dictionary version {version}")
        self._revision.reloaded(version, control_record.at, batch)
        control_records = [control_record]
        if self._grows:
            control_records.append(settled_record(control_record.at + 1, version, batch))
            self._revision.settled()
        yield from self._say(control_records, self.wake)

    def _dictionary(self, loaded: Dictionary, found: int) -> ControlRecord:
        self._restored.fingerprint = found
        kept = loaded.codes if self._grows else loaded.codes[:0]
        self._restored.keep_sourced(kept)
        matcher = self._matcher
        return dictionary_record(
            self._at + 1, matcher.version, found, loaded, matcher.number, kept, grows=self._grows
        )

    # ---- kept batches -----------------------------------------------------------------------

    def _place(self) -> tuple[int, int] | None:
        if self._revision.revision is None or not self._matcher.fixed:
            return None
        return self._revision.due(*self._kept.extent)

    def _revise(self, *, waiting: bool) -> Steps:
        place, revision = self._place(), self._revision.revision
        if place is None or not self._revision.may_go_on(waiting=waiting):
            return
        assert revision is not None
        seconds = self.step(_AGAIN)
        yield seconds
        step = self._kept.revise(
            revision, place, self._at + 1, cast(StreamMatcher, self._matcher), None
        )
        self._revision.revised(step.at)
        if step.settled:
            self._revision.settled()
        self._revision.took(seconds, waiting=waiting)
        yield from self._say(step.control_records)

    def _say(
        self, control_records: list[ControlRecord], done: Callable[[], None] = lambda: None
    ) -> Steps:
        if not control_records:
            return
        self._at += len(control_records)
        self._drafted += 1
        yield from self._slot()
        if not self.stopping:
            self.daemon.log.put(
                Group(self._heads, control=control_records, done=partial(self._said, done))
            )

    def _said(self, done: Callable[[], None]) -> None:
        self._drafted -= 1
        done()
