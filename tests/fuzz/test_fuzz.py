"""Failures found earlier stay fixed, and a minute of new inputs finds no others."""

from __future__ import annotations

from collections import Counter

import pytest

from streamer.client import messages
from streamer.daemon.core.ingest import IngestCore
from streamer.daemon.core.producers import Producers
from streamer.daemon.core.rights import Rights
from streamer.protocol import wire
from tests.fuzz.targets import TARGETS, Failed, fuzz, replay_kept

pytestmark = pytest.mark.whole

COMMIT = Producers.commit


def early(self, producer, epoch, mark):
    """As ``Producers.commit``, but commits one batch more than was stored."""
    producer.durable += 1
    return COMMIT(self, producer, epoch, mark)


SECONDS = {"wire": 40, "sequences": 15, "config": 15, "journal": 15, "index": 15}
ALWAYS = {
    "wire": {"ingest batch", "ingest repeat", "ingest conflict", "control status", "sync pull"},
    "sequences": {"read", "a fault"},
    "config": {"accepted", "refused"},
    "journal": {"the same", "refused"},
    "index": {"used", "refused", "found"},
}
"""Outcomes of some inputs of each target, which show that the oracles are exercised."""


@pytest.mark.parametrize("name", TARGETS)
def test_seeds_and_corpus(name):
    became = replay_kept(name).became
    assert became.total() > 20
    assert len(became) > 1


@pytest.mark.parametrize("name", ["wire", "config"])
def test_some_inputs_from_a_seed(name):
    runs = {"wire": 3000, "config": 300}[name]
    became = fuzz(name, runs=runs).became
    assert became.total() == runs
    assert became.keys() >= ALWAYS[name] or name == "config"


def test_the_same_seed_makes_the_same_inputs():
    assert fuzz("wire", runs=500, seed=3).became == fuzz("wire", runs=500, seed=3).became


MISTAKES = {
    "keys that are bytes": (wire, "text_keys", lambda fields: fields),
    "a gap": (IngestCore, "_check", lambda *_: None),
    "another content": (IngestCore, "_check_repeated", lambda *_: None),
    "in the name of others": (Rights, "may_send", lambda *_: True),
    "rows that cannot be": (messages, "check_columns", lambda *_, **__: None),
    "durable before it is stored": (Producers, "commit", early),
}


@pytest.mark.parametrize("what", MISTAKES)
def test_a_mistake_is_found(what, monkeypatch):
    where, name, mistake = MISTAKES[what]
    monkeypatch.setattr(where, name, mistake)
    with pytest.raises(Failed):
        fuzz("wire", runs=20_000)


@pytest.mark.slow
@pytest.mark.parametrize("name", TARGETS)
def test_a_minute(name):
    became: Counter[str] = fuzz(name, seconds=SECONDS[name], seed=2).became
    assert became.keys() >= ALWAYS[name]
