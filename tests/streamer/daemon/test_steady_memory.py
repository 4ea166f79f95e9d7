"""A daemon that deletes old records holds no more objects, however much has passed through it."""

from __future__ import annotations

import gc
import random
from collections import Counter

import pytest

from streamer.client import Subscriber
from streamer.daemon.restore import put_snapshot
from tests.daemon_kit import reads_of, write_fasta
from tests.reload_kit import GENOME, reloadable, send, settle, sources_of
from tests.waiting import DEADLINE, until

pytestmark = pytest.mark.whole

SUBSCRIBERS, BATCHES = 3, 20
# far fewer than there are batches; threads have a few objects in use at any time
FEW = 20


def tracked():
    return Counter(type(one).__qualname__ for one in gc.get_objects())


def test_batches_subscribers_and_reloads_leave_no_objects(tmp_path):
    """Neither in use nor as garbage: cycles are collected only after 100,000 objects."""
    rng = random.Random(23)
    overrides = ["journal.keep_bytes=20000", "answers.targets=true", "answers.coverage=true"]
    overrides.append("feed.beat_seconds=0.1")
    before, after = sources_of(rng), sources_of(rng)
    with reloadable(tmp_path, before, overrides=overrides) as (daemon, control):

        def work(sources):
            for _ in range(SUBSCRIBERS):
                with Subscriber(daemon.endpoints["feed"], topics=["match", "beat"]) as feed:
                    feed.wait_for_daemon(DEADLINE)
                    # results of many sizes
                    send(
                        daemon, [reads_of(GENOME, rng, rng.randint(1, 40)) for _ in range(BATCHES)]
                    )
            write_fasta(tmp_path / "ref.fa", sources)
            control.reload()
            settle(control)
            control.targets()
            # what is behind a snapshot is kept in any case
            put_snapshot(daemon.service._journal)
            head = daemon.service._journal.head
            until(lambda: control.status()["journal"]["oldest"] > head - BATCHES, "old ones expire")

        def work_twice():
            work(after)
            work(before)
            return gc.collect(), tracked()

        # kernels and modules are loaded on demand
        work_twice()
        gc.disable()
        try:
            _, held = work_twice()
            garbage, more = work_twice()
        finally:
            gc.enable()
    assert garbage < FEW
    assert not {name: count for name, count in (more - held).items() if count >= FEW}
