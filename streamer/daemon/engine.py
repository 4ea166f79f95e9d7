"""The engine thread: accepted batches, in order, through the matcher."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import structlog

from streamer.compiling import compile_notice
from streamer.config import Config
from streamer.daemon.board import Board
from streamer.daemon.ingest import Accepted
from streamer.daemon.mailbox import Mailbox
from streamer.daemon.worker import POLL_SECONDS, Worker
from streamer.devices import choose_device, cuda_problem, shown, usable_cards
from streamer.matching import BatchResult, Matcher
from streamer.reads import ReadBatch
from streamer.targets import Dictionary

# batches matched but not yet published: results are larger than reads, so only a few
_AHEAD = 3

log = structlog.get_logger("engine")


@dataclass(frozen=True, slots=True)
class Matched:
    """A batch, what was found in it, and the dictionary (for the names of targets)."""

    accepted: Accepted
    result: BatchResult
    dictionary: Dictionary


class Engine(Worker):
    """Loads the dictionary, then matches what is in ``inbox`` and hands it to ``forward``.

    ``forward`` releases a slot of ``slots`` for every batch once its results are out.
    """

    def __init__(
        self,
        board: Board,
        ended: Callable[[], None],
        forward: Callable[[Matched], None],
        wants_words: Callable[[], bool],
        loaded: Callable[[], None],
    ) -> None:
        super().__init__("engine", ended)
        self.inbox: Mailbox[Accepted] = Mailbox()
        self.slots = threading.Semaphore(_AHEAD)
        # (number of the batch in work, since when), for the watch on stalls
        self.working_on: tuple[int, float] | None = None
        self._board = board
        self._forward = forward
        self._wants_words = wants_words
        self._loaded = loaded

    def work(self) -> None:
        """Load, then match until told to stop."""
        config = self._board.config
        with compile_notice(quiet=False):
            dictionary = load_dictionary(config)
            device = chosen_device(config)
            _warm_up(config, device)
            matcher = make_matcher(config, dictionary, device)
        try:
            self._board.targets = len(dictionary.targets.names)
            self._tell(matcher)
            self.ready.set()
            self._loaded()
            while not self.stopping.is_set():
                self.inbox.wait(POLL_SECONDS)
                for item in self.inbox.take():
                    if not self._take_slot():
                        return
                    self._match(matcher, dictionary, item)
        finally:
            matcher.close()

    def _take_slot(self) -> bool:
        while not self.stopping.is_set():
            if self.slots.acquire(timeout=POLL_SECONDS):
                return True
        return False

    def _match(self, matcher: Matcher, dictionary: Dictionary, item: Accepted) -> None:
        self.working_on = (item.number, time.monotonic())
        result = matcher.match(item.batch, want_depths=self._wants_words())
        self.working_on = None
        self._tell(matcher)
        self._forward(Matched(item, result, dictionary))

    def _tell(self, matcher: Matcher) -> None:
        self._board.kmers = matcher.kmers
        self._board.version = matcher.version
        self._board.snapshot_version = matcher.snapshot_version


def load_dictionary(config: Config) -> Dictionary:
    """The dictionary that the configuration names."""
    settings = config.dictionary
    if settings.sources:
        log.info("reading the dictionary", sources=settings.sources)
        return Dictionary.from_files(settings.sources, settings.k, settings.strands)
    return Dictionary.empty(settings.k, settings.strands)


def chosen_device(config: Config) -> Literal["cpu", "cuda"]:
    """Where to match, said in one line; StreamerError if ``cuda`` is asked for and is not there."""
    settings = config.matching
    device = choose_device(
        settings.device, quiet=True, kernel=settings.kernel, option="matching.device"
    )
    if settings.device == "auto":
        log.info(shown(device, None if device == "cuda" else cuda_problem()))
    return device


def make_matcher(
    config: Config, dictionary: Dictionary, device: Literal["cpu", "cuda"] = "cpu"
) -> Matcher:
    """The matcher that the configuration asks for, on ``device``."""
    settings = config.matching
    return Matcher(
        dictionary,
        mode="grow" if config.dictionary.grows else "frozen",
        seed_bases=config.dictionary.seed_bases,
        kernel=config.matching.kernel,
        chunk=config.matching.chunk_bases,
        threads=config.matching.threads,
        track_tree=config.dictionary.grows,
        device=device,
        streams=settings.streams,
        cards=usable_cards(settings.gpus) if device == "cuda" else None,
        device_bytes=settings.device_bytes,
        on_fallback=log.warning if settings.device == "auto" else None,
    )


def _warm_up(config: Config, device: Literal["cpu", "cuda"]) -> None:
    """Match a few bases aside, so that kernels are compiled before the first batch comes."""
    settings = config.dictionary
    few = ReadBatch.from_sequences(["warm-up"], ["ACGT" * 16])
    dictionary = Dictionary.from_batches([few], settings.k, settings.strands)
    matcher = make_matcher(config, dictionary, device)
    try:
        matcher.match(few)
    finally:
        matcher.close()
