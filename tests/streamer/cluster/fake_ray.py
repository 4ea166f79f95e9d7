"""The calls of Ray that a team of workers makes, in this process: workers answer at once or never.

An object stands for its reference. What a worker raises comes out of ``get``. While ``head`` is
set, the head answers.
"""

from __future__ import annotations

import os
import threading
import time
from types import SimpleNamespace

from streamer.cluster.connecting import Cluster


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
