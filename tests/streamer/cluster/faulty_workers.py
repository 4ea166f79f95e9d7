"""Matchers whose workers are in this process and do what a test says."""

from __future__ import annotations

import random
import time

from streamer.cluster.cluster_matcher import ClusterMatcher
from streamer.cluster.match_worker import MatchWorker
from streamer.dictionary.targets import Dictionary
from streamer.errors import StreamerError
from streamer.matching.matcher import StreamMatcher
from streamer.matching.spec import MatchSpec
from streamer.sequences.read_batch import ReadBatch
from tests.streamer.cluster.fake_ray import Never, NotYet, RayError, fake_cluster

K = 11
NONE = "none has started for 0.5 s; does the cluster have enough CPUs?"
GENOME = "".join(random.Random(41).choices("ACGT", k=20_000))
SPECS = {
    "frozen": {"mode": "frozen", "counted": True},
    "labelled": {"mode": "frozen"},
    "grow": {"mode": "grow", "counted": True, "chunk": 700},
    "seeded": {"mode": "grow", "seed_bases": 9_000, "chunk": 700},
}
MORE_SPECS = SPECS | {
    "both": {"mode": "frozen", "strands": "both"},
    "forward": {"mode": "grow", "seed_bases": 9_000, "strands": "forward"},
    "limited": {"mode": "grow", "max_kmers": 12_000},
    "empty": {"mode": "grow", "sources": ()},
}

made = []
"""The matchers of a test, which are closed at its end."""


class Faults:
    """starts: whether workers start. alive: whether those that do not start give signs of life.

    stopping: how many workers hang after their first sign. dying: how many starts are killed.
    raising: what each start raises. made: how many starts there were. parts: how many are answered
    before workers die of each. hang: whether parts are never answered.
    """

    def __init__(self):
        self.starts = True
        self.alive = False
        self.stopping = 0
        self.dying = 0
        self.raising = ""
        self.made = 0
        self.parts = 1 << 60
        self.hang = False


def raised(error):
    """What Ray raises for an exception of a worker."""
    outcome = RayError("a traceback")
    outcome.cause = error
    return outcome


class Worker(MatchWorker):
    """A worker in this process that does what ``faults`` says."""

    def __init__(self, faults):
        self.faults = faults
        self.lessons = self.signs = 0
        faults.made += 1
        self.stops = faults.stopping > 0
        faults.stopping -= self.stops

    def fetched(self, boxed):
        return boxed[0]

    def load(self, *args):
        if self.stops:
            raise Never
        if not self.faults.starts:
            raise NotYet
        if self.faults.dying:
            self.faults.dying -= 1
            raise RayError("killed")
        if self.faults.raising:
            raise raised(StreamerError(self.faults.raising))
        self.address = super().load(*args)
        return self.address

    def alive(self, seconds):
        self.signs += 1
        if self.stops and self.signs > 1:
            raise Never
        if not (self.faults.starts or self.faults.alive or self.stops):
            raise NotYet
        time.sleep(0.01)

    def learn(self, codes):
        self.lessons += 1
        super().learn(codes)

    def match(self, request, learned):
        if self.faults.hang:
            raise Never
        self.faults.parts -= 1
        if self.faults.parts < 0:
            raise RayError("out of memory")
        try:
            return super().match(request, learned)
        except StreamerError as error:
            raise raised(error) from error


def batches(count):
    rng = random.Random(43)
    for _ in range(count):
        starts = [rng.randrange(len(GENOME) - 900) for _ in range(20)]
        reads = [GENOME[at : at + rng.randrange(900)] for at in starts] + ["", "ACGTN" * 5]
        yield ReadBatch.from_sequences([f"r{i}" for i in range(len(reads))], reads)


def matchers(name, targets, shards=1, faults=None):
    """One of this process, and one whose workers have faults."""
    fields = MORE_SPECS.get(name) or SPECS[name]
    spec = MatchSpec.of(**{"k": K, "sources": (targets,)} | fields)
    loaded = (
        Dictionary.from_files(spec.sources, K, spec.strands)
        if spec.sources
        else Dictionary.empty(K, spec.strands)
    )
    faults, said = faults or Faults(), []
    cluster = fake_cluster(lambda: Worker(faults))
    there = ClusterMatcher(loaded, spec, cluster, workers=2, shards=shards, say=said.append)
    made.append(there)
    return StreamMatcher(loaded, spec), there, faults, said
