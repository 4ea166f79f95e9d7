"""The engine thread: matches accepted batches, in order."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import structlog

from streamer.daemon.batch_record import Accepted, Matched
from streamer.daemon.board import Board
from streamer.daemon.config import Config
from streamer.daemon.core.heads import Heads
from streamer.daemon.mailbox import Mailbox
from streamer.daemon.publish import MatchedGroup
from streamer.daemon.restore import Restored, dictionary_record, fingerprint
from streamer.daemon.worker import POLL_SECONDS, Worker
from streamer.devices import choose_device, usable_cards
from streamer.dictionary.targets import Dictionary
from streamer.journal.record import Record
from streamer.matching.matcher import MakeTogether, Matcher, Start, load_dictionary
from streamer.matching.spec import MatchSpec
from streamer.protocol.batch_messages import Make
from streamer.sequences.read_batch import ReadBatch
from trie.cpu.compiling import compile_notice

# groups matched but not yet published: results are larger than reads, so only a few
_AHEAD = 3
# bases of waiting batches that are matched together: a GPU works on millions at a time
_TOGETHER = 1 << 24

log = structlog.get_logger("engine")


class EngineWorker(Worker):
    """Loads the dictionary, then matches the batches in ``inbox`` and passes them to ``forward``.

    restored: where it goes on. record: called with the record of a dictionary that is new.

    Waiting batches are matched and passed on as a group. Each group takes one of ``slots``, to be
    released once its results are out. ``make_batch`` and ``make_together`` are those of the
    matcher; they change if a GPU fails.
    """

    def __init__(
        self,
        board: Board,
        notify: Callable[[], None],
        restored: Restored,
        *,
        record: Callable[[Record], None],
        forward: Callable[[MatchedGroup], None],
        wants_words: Callable[[], bool],
        warm_up: Callable[[Config, MatchSpec], None],
    ) -> None:
        super().__init__("engine", notify)
        self.inbox: Mailbox[Accepted] = Mailbox()
        self.slots = threading.Semaphore(_AHEAD)
        self.make_batch: Make = ReadBatch.from_letters
        self.make_together: MakeTogether | None = None
        # (number of the first batch in work, since when), to report stalls
        self.working_on: tuple[int, float] | None = None
        self._board = board
        self._restored = restored
        self._at = restored.at
        self._heads = Heads(restored.heads)
        self._record = record
        self._forward = forward
        self._wants_words = wants_words
        self._warm_up = warm_up
        self._limit_said = False

    def work(self) -> None:
        """Load, then match until told to stop."""
        config = self._board.config
        with compile_notice(quiet=False, report=log.info):
            if config.dictionary.sources:
                log.info("reading the dictionary", sources=config.dictionary.sources)
            loaded = load_dictionary(config.spec, on_notice=log.warning)
            spec = spec_on_device(config)
            self._warm_up(config, spec)
            matcher = make_matcher(config, loaded, spec, self._start(loaded))
            dictionary, stored = matcher.dictionary, loaded if spec.near else None
        try:
            self._board.targets = len(dictionary.targets.names)
            self._note(matcher)
            # these objects stay: searching them for garbage would hold everything up
            gc.collect()
            gc.freeze()
            self.ready.set()
            self._notify()
            while not self.stopping.is_set():
                self.inbox.wait(POLL_SECONDS)
                for items in together(self.inbox.take()):
                    if not self._take_slot():
                        return
                    self._match(matcher, dictionary, items, stored)
        finally:
            matcher.close()

    def _start(self, loaded: Dictionary) -> Start:
        """Where the matcher goes on; a dictionary that is new gets a record."""
        start, before = self._restored.start, self._restored.fingerprint
        # k-mers are copied into the matcher's structures
        self._restored = Restored()
        found = fingerprint(loaded)
        if found == before:
            return start
        if before:
            start = replace(start, version=start.version + 1)
            log.warning(
                "the dictionary's sources changed since the last start", version=start.version
            )
        self._at += 1
        self._record(dictionary_record(self._at, start.version, found, loaded, time.time_ns()))
        return start

    def _take_slot(self) -> bool:
        while not self.stopping.is_set():
            if self.slots.acquire(timeout=POLL_SECONDS):
                return True
        return False

    def _match(
        self,
        matcher: Matcher,
        dictionary: Dictionary,
        items: Sequence[Accepted],
        stored: Dictionary | None,
    ) -> None:
        self.working_on = (items[0].number, time.monotonic())
        batches = [item.batch for item in items]
        if self._wants_words():
            results = [matcher.match(batch, want_depths=True) for batch in batches]
        else:
            results = matcher.match_all(batches)
        self.working_on = None
        self._note(matcher)
        first, self._at = self._at + 1, self._at + len(items)
        pairs = enumerate(zip(items, results, strict=True), first)
        matched = [Matched(at, *pair, dictionary, stored) for at, pair in pairs]
        self._forward(MatchedGroup(matched, self._heads))

    def _note(self, matcher: Matcher) -> None:
        self.make_batch, self.make_together = matcher.make_batch, matcher.make_together
        self._board.kmers = matcher.kmers
        self._note_limit(matcher)
        self._board.version = matcher.version
        self._board.snapshot_version = matcher.snapshot_version

    def _note_limit(self, matcher: Matcher) -> None:
        self._board.limited = matcher.limited
        if not matcher.limited or self._limit_said:
            return
        self._limit_said = True
        freezes = self._board.config.dictionary.at_limit == "freeze"
        effect = "no k-mers are added" if freezes else "no batches are accepted"
        message = f"the dictionary is at its limit, dictionary.max_kmers: {effect}"
        log.warning(message, kmers=matcher.kmers, max_kmers=matcher.spec.max_kmers)
        self._notify()


def together(items: Sequence[Accepted]) -> Iterator[list[Accepted]]:
    """Batches in groups of about ``_TOGETHER`` bases, each of one batch at least."""
    group: list[Accepted] = []
    bases = 0
    for item in items:
        if group and bases + item.batch.symbols > _TOGETHER:
            yield group
            group, bases = [], 0
        group.append(item)
        bases += item.batch.symbols
    if group:
        yield group


def spec_on_device(config: Config) -> MatchSpec:
    """What to match, on the device to use; StreamerError if ``cuda`` is asked for and missing."""
    spec = config.spec
    device = choose_device(
        spec.device, kernel=spec.cuda_kernel, option="matching.device", report=log.info
    )
    cards = usable_cards(config.matching.gpus) if device == "cuda" else ()
    return replace(spec, device=device, cards=tuple(cards))


def make_matcher(
    config: Config, dictionary: Dictionary, spec: MatchSpec, start: Start | None = None
) -> Matcher:
    """The matcher of ``spec``; if a GPU fails, the CPU takes over where the device is ``auto``."""
    on_fallback = log.warning if config.matching.device == "auto" else None
    return Matcher(dictionary, spec, start=start, on_fallback=on_fallback)
