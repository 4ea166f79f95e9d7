"""The calls of Ray that a team of workers makes, in this process: workers answer at once or never.

An object stands for its reference. What a worker raises comes out of ``get``.
"""

from __future__ import annotations

import time
from types import SimpleNamespace

from streamer.cluster.connecting import Cluster


class RayError(Exception):
    """Of a worker that has died."""


class Never(Exception):
    """Raised by a worker that gives no answer."""


class Reference:
    """The outcome of a call."""

    def __init__(self, call, args):
        self.value = self.error = None
        try:
            self.value = call(*args)
        except (RayError, Never) as error:
            self.error = error


class Actor:
    """Handle of a worker."""

    def __init__(self, worker):
        self.worker = worker

    def __getattr__(self, name):
        call = getattr(self.worker, name)
        return SimpleNamespace(remote=lambda *args: Reference(call, args))


class FakeRay:
    """Ray whose actors are made by ``make``, whatever their class."""

    exceptions = SimpleNamespace(RayError=RayError)

    def __init__(self, make):
        made = SimpleNamespace(remote=lambda *args: Actor(make(*args)))
        self.remote = lambda _: SimpleNamespace(options=lambda **_: made)

    def put(self, obj):
        return obj

    def kill(self, actor, *, no_restart):
        pass

    def wait(self, references, *, num_returns, timeout, fetch_local):
        done = [one for one in references if not isinstance(one.error, Never)][:num_returns]
        if not done:
            time.sleep(timeout)
        return done, [one for one in references if one not in done]

    def get(self, reference):
        if reference.error is not None:
            raise reference.error
        return reference.value


def fake_cluster(make):
    """A cluster whose workers are what ``make(version, setup, grown)`` returns."""
    return Cluster(FakeRay(make))
