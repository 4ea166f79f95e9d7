"""The engine thread: matches accepted batches in order, and kept batches again after a reload.

Makes the matchers of a daemon: on which device, and in this process or on a cluster.
"""

from __future__ import annotations

import gc
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial

import numpy as np
import structlog
from numpy.typing import NDArray

from streamer.daemon.batch_record import Accepted, Matched
from streamer.daemon.config import Config
from streamer.daemon.daemon_status import DaemonStatus
from streamer.daemon.kept_batches import KeptBatches
from streamer.daemon.publish import ControlRecord, Group, dictionary_record, settled_record
from streamer.daemon.read_decisions import Answer, DecisionStage
from streamer.daemon.reload import Reloaded, Reply, ending, not_loaded
from streamer.daemon.restore import Restored, fingerprint
from streamer.daemon.worker import POLL_SECONDS, Inbox, Worker
from streamer.device_choice import choose_device, stream_cards
from streamer.dictionary.targets import Dictionary
from streamer.errors import StreamerError
from streamer.journal.record import JournalUnread
from streamer.matching.match_engine import NO_CODES, MakeTogether
from streamer.matching.matcher import Start, StreamMatcher, load_dictionary
from streamer.matching.panel import Panel
from streamer.matching.reports import Assignment
from streamer.matching.result import BatchResult
from streamer.matching.spec import MatchSpec
from streamer.matching.target_tally import TargetTally
from streamer.protocol.payloads import Make
from streamer.protocol.wire import Header
from streamer.sequences.read_batch import ReadBatch
from trie.cpu.compiling import compile_notice

log = structlog.get_logger("engine")


def spec_on_device(config: Config) -> MatchSpec:
    """The spec with the device to use; StreamerError if ``cuda`` is required and missing."""
    spec = config.spec
    if config.cluster.address:
        return replace(spec, device="cpu")
    gpus = config.matching.gpus
    device = choose_device(
        spec.device,
        kernel=spec.cuda_kernel,
        option="matching.device",
        report=log.info,
        gpus=1 if spec.changes else gpus,
    )
    if device == "cuda":
        spec = replace(spec, cards=stream_cards(gpus, changes=spec.changes, report=log.info))
    return replace(spec, device=device)


MakeMatcher = Callable[[Dictionary, MatchSpec, Start | None], StreamMatcher]


def matchers(
    config: Config, stack: ExitStack, fail: Callable[[StreamerError], None]
) -> MakeMatcher:
    """A function that makes matchers in this process or on the cluster, which it connects to.

    fail: called in another thread if Ray ends on this machine, as it would then end this process.
    """
    wanted = config.cluster
    if not wanted.address:
        return partial(make_matcher, config)
    # Ray is not installed everywhere, and takes a second to import
    from streamer.cluster.cluster_matcher import ClusterMatcher
    from streamer.cluster.connecting import connected

    def on_end(why: str) -> None:
        fail(StreamerError(f"{why}: start it again, then the daemon"))

    cluster = stack.enter_context(connected(wanted.address, config.matching.threads, on_end))
    log.info(cluster.line(), address=wanted.address, shards=wanted.shards)

    def make(dictionary: Dictionary, spec: MatchSpec, start: Start | None) -> StreamMatcher:
        return ClusterMatcher(
            dictionary, spec, cluster, workers=wanted.workers, shards=wanted.shards, start=start,
            say=log.warning,
        )  # fmt: skip

    return make


def make_matcher(
    config: Config, dictionary: Dictionary, spec: MatchSpec, start: Start | None = None
) -> StreamMatcher:
    """The matcher of ``spec``; with the device ``auto`` the CPU takes over if a GPU fails."""
    on_fallback = log.warning if config.matching.device == "auto" else None
    return StreamMatcher(dictionary, spec, start=start, on_fallback=on_fallback)


# groups matched but not yet published; few, since results are larger than reads
_AHEAD = 3
# bases of waiting batches that are matched together, since a GPU works on millions at a time
_GROUP_BASES = 1 << 24
# the engine waits for unpublished results, but no longer than this while decisions are due
_SLOT_SECONDS = 0.005
# seconds until a journal that could not be read is tried again
_TRY_SECONDS = 1.0


class EngineWorker(Worker):
    """Loads the dictionary, then matches the batches in ``inbox`` and passes them to ``forward``.

    restored: the state to continue from. kept: the batches of the journal, if there is one.

    Waiting batches are matched and passed on as a group. Each group takes one of ``slots``, which
    is released once its results are out. ``make_batch`` and ``make_together`` are those of the
    matcher; they change if a GPU fails.
    """

    def __init__(
        self,
        status: DaemonStatus,
        notify: Callable[[], None],
        restored: Restored,
        *,
        kept: KeptBatches | None,
        forward: Callable[[Group], None],
        wants: Callable[[str], bool],
        warm_up: Callable[[Config, MatchSpec, int], None],
    ) -> None:
        super().__init__("engine", notify)
        self.inbox: Inbox[Accepted] = Inbox()
        self.slots = threading.Semaphore(_AHEAD)
        self.make_batch: Make = ReadBatch.from_letters
        self.make_together: MakeTogether | None = None
        # the dictionary that was read last
        self._loaded: Dictionary | None = None
        # the matcher in use, and whether it is matching batches now
        self.matcher: StreamMatcher | None = None
        self.matching = False
        self._status = status
        self._spec = status.config.spec
        # k-mers of the stream are collected here if a reload or a snapshot needs them
        self._restored = restored
        self._panel = Panel(**status.config.panel.fields())
        self._revision = restored.core
        self._at = restored.at
        self._heads = dict(restored.heads)
        self._kept = kept
        self._reloaded: deque[Reloaded] = deque()
        self._forward = forward
        self._wants = wants
        self.decisions = DecisionStage(status.config)
        self._warm_up = warm_up
        self._limit_said = False
        self._words_refused = False
        # kept batches that could not be read, and when to try them again
        self._unread = False
        self._try_again = 0.0

    @property
    def loading(self) -> bool:
        """Whether the dictionary is still being read or built."""
        return self.is_alive() and not self.ready.is_set()

    def ask(self, batch: ReadBatch, answer: Answer) -> None:
        """Queue reads to be decided on, as ``DecisionStage.ask``; from any thread."""
        self.decisions.ask(batch, answer)
        self.inbox.wake()

    def reload(self, reloaded: Reloaded) -> None:
        """Match against another dictionary from the next batch on; from any thread."""
        self._reloaded.append(reloaded)
        self.inbox.wake()

    def prepare(self, dictionary: Dictionary) -> StreamMatcher | None:
        """A matcher for another dictionary, made ahead if possible; from any thread."""
        on_cluster = self._status.config.cluster.address
        if self._spec.changes or self._spec.device == "cuda" or on_cluster:
            return None
        start = Start(version=self._status.version + 1)
        return make_matcher(self._status.config, dictionary, self._spec, start)

    # ---- the thread ----------------------------------------------------------------------------

    def work(self) -> None:
        """Load the dictionary, then match until told to stop."""
        with ExitStack() as stack:
            self._make_matcher = matchers(self._status.config, stack, self.fail)
            self._work()

    def _work(self) -> None:
        config = self._status.config
        with compile_notice(quiet=False, report=log.info):
            if config.dictionary.sources:
                log.info("reading the dictionary", sources=config.dictionary.sources)
            loaded = load_dictionary(config.spec, on_notice=log.warning)
            self._spec = spec_on_device(config)
            self._warm_up(config, self._spec, len(loaded.targets.names))
            self._begin(loaded)
        try:
            # these objects stay, and searching them for garbage would stall everything
            gc.collect()
            gc.freeze()
            # while modules are imported it is higher, and a search takes longer
            gc.set_threshold(100_000)
            self.ready.set()
            self._notify()
            while not self.stopping.is_set():
                self.inbox.wait(0 if self._place() else POLL_SECONDS)
                batches = self.inbox.take()
                self.stage_work.taken = len(batches)
                self._turn(deque(group_batches(batches)))
        finally:
            self._matcher.close()
            self.decisions.close()
            while self._reloaded:
                self._reloaded.popleft().reply(ending())

    def _turn(self, groups: deque[list[Accepted]]) -> None:
        while not self.stopping.is_set():
            while self._reloaded:
                self._switch(self._reloaded.popleft())
            self.decisions.answer()
            if groups:
                if not self._take_slot():
                    return
                begun = time.monotonic()
                group = groups.popleft()
                with self.stage_work.step(f"batch {group[0].number} to be matched"):
                    self._match(group)
                self.stage_work.taken -= len(group)
                self.stage_work.done += 1
                self._revision.waited(time.monotonic() - begun)
            self._revise(waiting=bool(groups) or self.inbox.waiting)
            if not groups:
                return

    def _take_slot(self) -> bool:
        if self.slots.acquire(blocking=False):
            return True
        with self.stage_work.wait("earlier results to be stored and published"):
            while not self.stopping.is_set():
                if self.slots.acquire(timeout=_SLOT_SECONDS if self.decisions.on else POLL_SECONDS):
                    return True
                self.decisions.answer()
        return False

    def _match(self, items: Sequence[Accepted]) -> None:
        matcher = self._matcher
        self.matching = True
        words = self._wants("word")
        if words and (refused := matcher.depths_refused):
            if not self._words_refused:
                log.warning("event words cannot be published", why=refused)
            self._words_refused, words = True, False
        results = matcher.match([item.batch for item in items], words=words)
        self.matching = False
        self._note(matcher)
        if self._spec.changes and self._spec.sources:
            self._remember(results)
        first, self._at = self._at + 1, self._at + len(items)
        pairs = enumerate(zip(items, results, strict=True), first)
        decide = self.decisions.decide_batch if self._wants("decision") else lambda _: None
        matched = [
            Matched(
                at, item, result, matcher.dictionary, self._stored,
                self.decisions.on, decide(item),
            )
            for at, (item, result) in pairs
        ]  # fmt: skip
        self._forward(Group(self._heads, matched))

    def _note(self, matcher: StreamMatcher) -> None:
        self.make_batch, self.make_together = matcher.make_batch, matcher.make_together
        self._status.kmers = matcher.kmers
        self._note_limit(matcher)
        self._status.version = matcher.version
        self._status.snapshot_version = matcher.snapshot_version
        self._status.cards = matcher.spec.cards if matcher.device == "cuda" else ()

    def _note_limit(self, matcher: StreamMatcher) -> None:
        self._status.limited = matcher.limited
        if not matcher.limited or self._limit_said:
            return
        self._limit_said = True
        freezes = self._status.config.dictionary.at_limit == "freeze"
        effect = "no k-mers are added" if freezes else "no batches are accepted"
        message = f"the dictionary is at its limit, dictionary.max_kmers: {effect}"
        log.warning(message, kmers=matcher.kmers, max_kmers=matcher.spec.max_kmers)
        self._notify()

    # ---- dictionaries --------------------------------------------------------------------------

    def _begin(self, loaded: Dictionary) -> None:
        """Make the matcher that continues where the journal ends; changed sources are a reload."""
        restored, checksum = self._restored, fingerprint(loaded)
        first = not restored.fingerprint and not restored.number
        if checksum != restored.fingerprint and not first and restored.unstored:
            raise StreamerError(
                f"the sources have changed, and the journal does not hold the {restored.unstored:,}"
                " k-mers that the growing dictionary began with: put the files back as they were"
            )
        kept = self._keep(loaded)
        start = restored.start(self._spec)
        if checksum != restored.fingerprint and not first:
            start = replace(start, version=start.version + 1)
        matcher = self._make_matcher(loaded, self._spec, start)
        self.decisions.use(matcher)
        self._use(loaded, matcher)
        self._count_kept(loaded, start)
        if first:
            self._say([self._dictionary(loaded, checksum, kept)])
        elif checksum != restored.fingerprint:
            said = self._replaced(loaded, checksum, restored.version, kept)
            message = "the dictionary's sources changed since the last start: reloaded"
            log.warning(message, **said)
        else:
            self._note_revision()
        if not (self._spec.changes and self._spec.sources):
            # the matcher has copied the k-mers
            self._restored = Restored(number=restored.number, fingerprint=checksum)

    def _switch(self, new: Reloaded) -> None:
        with self.stage_work.step("the new dictionary to be taken over"):
            self._take_over(new)
        self.stage_work.done += 1

    def _take_over(self, new: Reloaded) -> None:
        before = self._matcher
        if new.fingerprint == self._restored.fingerprint:
            new.reply(self._outcome(before.version))
            return
        sourced = self._restored.sourced
        try:
            self._panel.check(new.dictionary)
            number = None if self._kept is None else self._kept.number()
            kept = self._keep(new.dictionary)
            matcher = new.matcher
            if matcher is None:
                start = replace(self._restored.start(self._spec), version=before.version + 1)
                matcher = self._make_matcher(new.dictionary, self._spec, start)
            self.decisions.use(matcher)
        except Exception as error:
            # whatever the new matcher lacks (memory, threads, a target), the old one stays in use
            self._restored.sourced = sourced
            new.reply(not_loaded(error))
            return
        matcher.succeed(before)
        before.close()
        self._use(new.dictionary, matcher)
        self._replaced(new.dictionary, new.fingerprint, before.version, kept, number, new.reply)

    def _use(self, loaded: Dictionary, matcher: StreamMatcher) -> None:
        self._matcher = self.matcher = matcher
        self._loaded = loaded
        self._stored = loaded if self._spec.near else None
        self._status.targets = len(matcher.dictionary.targets.names)
        if self._spec.counted:
            self._panel.check(loaded)
            panel = self._panel.grouped(loaded)
            self._status.groups = panel.groups
            before, answers = self._status.tally, self._status.config.answers
            rule = Assignment(answers.min_windows, answers.min_fraction)
            said = () if before is None else before.said
            self._status.tally = TargetTally(
                matcher, rule, panel, said, covers=answers.coverage,
                barcodes=answers.barcodes, full=log.warning, sheet=self._status.sheet,
            )  # fmt: skip
        self._note(matcher)

    def _count_kept(self, loaded: Dictionary, start: Start) -> None:
        """Count the batches of the journal, since target counts are not stored."""
        tally, matcher = self._status.tally, self._matcher
        if tally is None or self._kept is None or not self._restored.number:
            return
        if not matcher.fixed:
            # a matcher with the same k-mers that learns nothing from these batches
            spec = replace(self._spec, mode="frozen", seed_bases=0, track_tree=False)
            matcher = make_matcher(self._status.config, loaded, spec, start)
        log.info("counting the batches of the journal")
        for results in self._kept.matched(matcher):
            if self.stopping.is_set():
                break
            tally.add(results)
        _, tally.until = self._kept.extent
        tally.enough()
        if matcher is not self._matcher:
            matcher.close()

    def _replaced(
        self,
        loaded: Dictionary,
        checksum: int,
        before: int,
        kept: NDArray[np.uint64],
        number: int | None = None,
        reply: Reply = lambda _: None,
    ) -> Header:
        """Record that this dictionary replaces another version; returns the reply to a reload.

        kept: as for ``_dictionary``. number: that of the first kept batch, if known.
        A growing dictionary only gains k-mers, and without a journal no batches are kept.
        """
        control_record = self._dictionary(loaded, checksum, kept)
        self._revision.reloaded(
            self._matcher.version, control_record.at, control_record.meta["batch"]
        )
        control_records = [control_record]
        if self._kept is None or self._spec.grows:
            control_records.append(
                settled_record(
                    control_record.at + 1, self._matcher.version, control_record.meta["batch"]
                )
            )
            self._revision.settled()
        self._note_revision(number)
        outcome = self._outcome(before)

        def recorded() -> None:
            self._status.announce()
            self.inbox.wake()
            reply(outcome)

        self._say(control_records, recorded)
        return outcome

    def _outcome(self, before: int) -> Header:
        """The reply to a reload; before: the previous version."""
        revision = self._status.revision
        return {
            "version_before": before,
            "version": self._matcher.version,
            "kmers": self._matcher.kmers,
            "batches": 0 if revision is None else revision["batches"],
        }

    def _keep(self, loaded: Dictionary) -> NDArray[np.uint64]:
        """Keep k-mers of sources that a growing dictionary knows for ever, and return them.

        These are all of a dictionary that is not large, and those of a large one that another one,
        ``loaded``, lacks.
        """
        if not self._spec.grows:
            return NO_CODES
        kept = NO_CODES if loaded.is_large else loaded.codes
        before = self._loaded
        if before is not None and before.is_large:
            kept = np.concatenate((kept, before.index.beside(loaded.index)))
        self._restored.keep_sourced(kept)
        return kept

    def _dictionary(
        self, loaded: Dictionary, checksum: int, kept: NDArray[np.uint64]
    ) -> ControlRecord:
        """The record of a dictionary; ``kept``: the k-mers of sources that it stores."""
        self._restored.fingerprint = checksum
        version, number = self._matcher.version, self._matcher.number
        spec = self._spec
        return dictionary_record(
            self._at + 1, version, checksum, loaded, number, kept, grows=spec.grows,
            sources=spec.sources, targets=(spec.targets, spec.target_by),
        )  # fmt: skip

    def _remember(self, results: Sequence[BatchResult]) -> None:
        """Collect k-mers that a matcher of reloaded sources must know, too."""
        self._restored.grown += [r.new_kmers for r in results if r.new_kmers.size]
        self._restored.learned += [r.learned for r in results if r.learned.size]

    # ---- kept batches --------------------------------------------------------------------------

    def _place(self) -> tuple[int, int] | None:
        """The records of the next kept batches to match again, if there are any."""
        if self._kept is None or self._revision.revision is None or not self._matcher.fixed:
            return None
        if self._unread and time.monotonic() < self._try_again:
            return None
        return self._revision.due(*self._kept.extent)

    def _revise(self, *, waiting: bool) -> None:
        """Match some kept batches again, if it is their turn."""
        place, revision = self._place(), self._revision.revision
        if place is None or not self._revision.may_go_on(waiting=waiting):
            return
        assert revision is not None
        assert self._kept is not None
        begun = time.monotonic()
        try:
            with self.stage_work.step("batches of the journal to be matched again"):
                step = self._kept.revise(
                    revision, place, self._at + 1, self._matcher, self._stored, self._status.tally
                )
        except JournalUnread as error:
            if not self._unread:
                log.warning("batches of the journal are matched again later", why=str(error))
            self._unread, self._try_again = True, begun + _TRY_SECONDS
            return
        self._unread = False
        self.stage_work.done += 1
        self._revision.revised(step.at)
        if step.batch is not None:
            self._note_revision(step.batch)
        if step.settled:
            self._revision.settled()
        self._revision.took(time.monotonic() - begun, waiting=waiting)
        self._say(step.control_records, partial(self._published, revision.version, step.settled))

    def _published(self, version: int, settled: bool) -> None:
        if settled:
            self._status.settled = version
            log.info("kept batches are revised", version=version)

    def _note_revision(self, batch: int | None = None) -> None:
        """Note how many batches are left to match again; batch: the next one, if known."""
        revision, kept, noted = self._revision.revision, self._kept, None
        if revision is not None and kept is not None:
            batch = kept.number(revision.after) if batch is None else batch
            # the dictionary is not recorded yet
            batch = self._restored.number if batch is None else batch
            noted = {"version": revision.version, "batches": max(0, revision.batch - batch)}
        self._status.revision = noted

    def _say(
        self, control_records: list[ControlRecord], done: Callable[[], None] = lambda: None
    ) -> None:
        if control_records and self._take_slot():
            self._at += len(control_records)
            self._forward(Group(self._heads, control=control_records, done=done))


def group_batches(items: Sequence[Accepted]) -> Iterator[list[Accepted]]:
    """Split batches into groups of about ``_GROUP_BASES`` bases, with at least one batch each."""
    group: list[Accepted] = []
    bases = 0
    for item in items:
        if group and bases + item.batch.symbols > _GROUP_BASES:
            yield group
            group, bases = [], 0
        group.append(item)
        bases += item.batch.symbols
    if group:
        yield group
