"""Matchers whose workers are in this process and do what a test says."""

from __future__ import annotations

import os
import random
import threading
import time
from types import SimpleNamespace

from streamer.cluster.cluster_matcher import ClusterMatcher
from streamer.cluster.connecting import Cluster
from streamer.cluster.match_worker import MatchWorker
from streamer.dictionary.targets import Dictionary
from streamer.errors import StreamerError
from streamer.matching.matcher import StreamMatcher
from streamer.matching.spec import MatchSpec
from streamer.sequences.read_batch import ReadBatch

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


class RayError(Exception):
    """Of a worker that has died."""


class GetTimeoutError(RayError):
    """There is no outcome yet."""


class Never(Exception):
    """Raised by a worker that gives no answer."""


class NotYet(Never):
    """Raised by a worker that is still at work; it is called again."""


class Reference:
    """The outcome of a call."""

    def __init__(self, call, args):
        self.call, self.args = call, args
        self.ask()

    def ask(self):
        self.value = self.error = None
        try:
            self.value = self.call(*self.args)
        except (RayError, Never) as error:
            self.error = error

    @property
    def done(self):
        if isinstance(self.error, NotYet):
            self.ask()
        return not isinstance(self.error, Never)


class Actor:
    """Handle of a worker."""

    def __init__(self, worker):
        self.worker = worker

    def __getattr__(self, name):
        call = getattr(self.worker, name)
        remote = SimpleNamespace(remote=lambda *args: Reference(call, args))
        return SimpleNamespace(remote=remote.remote, options=lambda **_: remote)


class FakeRay:
    """Ray whose actors are made by ``make``, whatever their class."""

    exceptions = SimpleNamespace(
        RayError=RayError, RayTaskError=RayError, GetTimeoutError=GetTimeoutError
    )

    def __init__(self, make):
        made = SimpleNamespace(remote=lambda *args: Actor(make(*args)))
        self.head = threading.Event()
        self.head.set()
        self.remote = lambda **_: lambda _: SimpleNamespace(options=lambda **_: made)

    def cluster_resources(self):
        self.head.wait()
        return {"CPU": 2}

    def put(self, obj):
        return obj

    def kill(self, actor, *, no_restart):
        """End the worker's line, which a process that is killed takes along."""
        address = vars(actor.worker).pop("address", None)
        if address is not None:
            for descriptor in address.memory, address.answers, address.requests:
                os.close(descriptor)

    def wait(self, references, *, num_returns, timeout, fetch_local):
        done = [one for one in references if one.done][:num_returns]
        if not done:
            time.sleep(timeout)
        return done, [one for one in references if one not in done]

    def get(self, reference, timeout=None):
        if timeout is not None and not reference.done:
            raise GetTimeoutError
        if reference.error is not None:
            raise reference.error
        return reference.value


def fake_cluster(make):
    """A cluster whose workers are what ``make()`` returns."""
    return Cluster(FakeRay(make))


class TasksHere:
    """Ray whose tasks run at once, in this process; a result stands for its reference."""

    exceptions = SimpleNamespace(
        RayError=RayError, RayTaskError=RayError, GetTimeoutError=GetTimeoutError
    )

    def remote(self, function):
        return SimpleNamespace(options=lambda **_: SimpleNamespace(remote=function))

    def cluster_resources(self):
        return {"CPU": 2}

    def nodes(self):
        return [{"Alive": True}]

    def put(self, obj):
        return obj

    def get(self, reference, timeout=None):
        return reference

    def cancel(self, reference, force):
        pass
