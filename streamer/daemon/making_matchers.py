"""Makes the matchers of a daemon: on which device, and in this process or on a cluster."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from functools import partial

import structlog

from streamer.daemon.config import Config
from streamer.device_choice import choose_device, stream_cards
from streamer.dictionary.targets import Dictionary
from streamer.errors import StreamerError
from streamer.matching.matcher import StreamMatcher
from streamer.matching.spec import MatchSpec
from streamer.matching.starting import Start

log = structlog.get_logger("engine")


def spec_on_device(config: Config) -> MatchSpec:
    """What to match, on the device to use; StreamerError if ``cuda`` is required and missing."""
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
