"""The engine thread: matches accepted batches, in order."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import cast

import structlog

from streamer.daemon.batch_record import Accepted, Matched
from streamer.daemon.board import Board
from streamer.daemon.config import Config, default_strands
from streamer.daemon.mailbox import Mailbox
from streamer.daemon.worker import POLL_SECONDS, Worker
from streamer.devices import KERNELS, choose_device, cuda_problem, shown, usable_cards
from streamer.dictionary.targets import Dictionary
from streamer.matching import Matcher
from streamer.matching.matcher import Device, Kernel, MakeTogether
from streamer.matching.near import Approximate, Options
from streamer.protocol.batch_messages import Make
from streamer.sequences.read_batch import ReadBatch
from trie.cpu.compiling import compile_notice
from trie.cpu.threads import usable_cores

# groups matched but not yet published: results are larger than reads, so only a few
_AHEAD = 3
# bases of waiting batches that are matched together: a GPU works on millions at a time
_TOGETHER = 1 << 24

log = structlog.get_logger("engine")


class EngineWorker(Worker):
    """Loads the dictionary, then matches the batches in ``inbox`` and passes them to ``forward``.

    Waiting batches are matched and passed on as a group. Each group takes one of ``slots``, to be
    released once its results are out. ``make_batch`` and ``make_together`` are those of the
    matcher; they change if a GPU fails.
    """

    def __init__(
        self,
        board: Board,
        notify: Callable[[], None],
        forward: Callable[[Sequence[Matched]], None],
        wants_words: Callable[[], bool],
        warm_up: Callable[[Config, Device], None],
    ) -> None:
        super().__init__("engine", notify)
        self.inbox: Mailbox[Accepted] = Mailbox()
        self.slots = threading.Semaphore(_AHEAD)
        self.make_batch: Make = ReadBatch.from_letters
        self.make_together: MakeTogether | None = None
        # (number of the first batch in work, since when), to report stalls
        self.working_on: tuple[int, float] | None = None
        self._board = board
        self._forward = forward
        self._wants_words = wants_words
        self._warm_up = warm_up

    def work(self) -> None:
        """Load, then match until told to stop."""
        config = self._board.config
        with compile_notice(quiet=False, report=log.info):
            dictionary = load_dictionary(config)
            device = chosen_device(config)
            self._warm_up(config, device)
            stored = load_dictionary(config, as_stored=True) if config.matching.distance else None
            matcher = make_matcher(config, dictionary, device, stored)
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
        self._forward(
            [
                Matched(item, result, dictionary, stored)
                for item, result in zip(items, results, strict=True)
            ]
        )

    def _note(self, matcher: Matcher) -> None:
        self.make_batch, self.make_together = matcher.make_batch, matcher.make_together
        self._board.kmers = matcher.kmers
        self._board.version = matcher.version
        self._board.snapshot_version = matcher.snapshot_version


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


def load_dictionary(config: Config, *, as_stored: bool = False) -> Dictionary:
    """The dictionary of the configuration; with ``as_stored`` its k-mers as in the records."""
    settings = config.dictionary
    strands = settings.strands or default_strands(config.matching)
    if settings.sources:
        if not as_stored:
            log.info("reading the dictionary", sources=settings.sources)
        return Dictionary.from_files(
            settings.sources,
            settings.k,
            strands,
            as_stored=as_stored,
            on_notice=None if as_stored else log.warning,
        )
    return Dictionary.empty(settings.k, "forward" if as_stored else strands)


def chosen_device(config: Config) -> Device:
    """The device of the configuration, logged if chosen here; StreamerError if it is missing."""
    settings = config.matching
    device = choose_device(
        settings.device, quiet=True, kernel=settings.kernel, option="matching.device"
    )
    if settings.device == "auto":
        log.info(shown(device, None if device == "cuda" else cuda_problem()))
    return device


def make_matcher(
    config: Config,
    dictionary: Dictionary,
    device: Device = "cpu",
    stored: Dictionary | None = None,
) -> Matcher:
    """The matcher of the configuration, on ``device``; ``stored`` as in Matched."""
    settings = config.matching
    exact = settings.kernel in KERNELS["exact"]
    cards = usable_cards(settings.gpus) if device == "cuda" else None
    fallback = log.warning if settings.device == "auto" else None
    approximate = None
    if stored is not None:
        approximate = Approximate(
            stored,
            semantics=settings.semantics,
            distance=settings.distance,
            both=dictionary.strands == "both",
            options=Options(
                method="auto" if exact else settings.kernel,
                device=device,
                threads=settings.threads or usable_cores(),
                chunk=settings.chunk_bases,
                streams=settings.streams,
                cards=cards or (0,),
                device_bytes=settings.device_bytes,
                on_fallback=fallback,
            ),
        )
    return Matcher(
        dictionary,
        mode="grow" if config.dictionary.grows else "frozen",
        seed_bases=config.dictionary.seed_bases,
        kernel=cast(Kernel, settings.kernel if exact else "auto"),
        chunk=settings.chunk_bases,
        threads=settings.threads,
        track_tree=config.dictionary.grows,
        device=device,
        streams=settings.streams,
        cards=cards,
        device_bytes=settings.device_bytes,
        on_fallback=fallback,
        approximate=approximate,
    )
