"""A reload: new batches use the new dictionary at once, kept ones are matched again."""

from __future__ import annotations

import random

import pytest

from streamer.client import Control, Producer
from tests.daemon_kit import running, write_fasta
from tests.reload_kit import (
    answers,
    batches_of,
    configured,
    folded,
    settle,
    sources_of,
    stored,
    totals_of,
)
from tests.waiting import DEADLINE

pytestmark = pytest.mark.whole


def send(daemon, batches):
    with Producer(daemon.endpoints["ingest"], name="lab") as producer:
        for reads in batches:
            producer.send(reads)
        producer.flush(matched=True, timeout=DEADLINE)


@pytest.mark.parametrize("seed", range(4))
def test_after_settled_the_fold_is_one_match_of_all_kept_reads(tmp_path, seed):
    rng = random.Random(seed)
    path = configured(tmp_path)
    sources = sources_of(rng)
    write_fasta(tmp_path / "ref.fa", sources)
    batches = []
    with running(path) as daemon, Control(daemon.endpoints["control"]) as control:
        for version in range(2, 5):
            more = batches_of(rng, 6)
            send(daemon, more)
            batches += more
            sources = sources_of(rng)
            write_fasta(tmp_path / "ref.fa", sources)
            said = control.reload()
            assert (said["version_before"], said["version"]) == (version - 1, version)
            assert said["batches"] == len(batches)
            if rng.random() < 0.7:
                # else the next reload finds this revision under way
                status = settle(control)
                fold = folded(stored(tmp_path))
                assert fold.answers() == answers(batches, sources)
                assert fold.settled[-1] == (version, 0)
                assert status["dictionary"]["version"] == version
        status = settle(control)
    fold = folded(stored(tmp_path))
    want = answers(batches, sources)
    assert fold.answers() == want
    assert fold.settled[-1] == (4, 0)
    assert any(topic == "retract" for topic, *_ in stored(tmp_path))
    for name, count in totals_of(want).items():
        assert fold.totals[name] == status["totals"][name] == count
