"""Which kept batches are matched again: against a plain list of what is kept."""

from __future__ import annotations

import random

import pytest

from streamer.daemon.core.revision import SHARE, Revision, RevisionCore


class Stream:
    """Records of a stream as a list of kinds, the oldest that is kept, and a core beside it.

    answers: by record of a batch, the version that its answers are of.
    """

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.records: list[tuple[str, int]] = []
        self.recorded = 0
        self.oldest = 1
        self.version = 1
        self.answers: dict[int, int] = {}
        self.core = RevisionCore()
        self.settled = 0

    def add(self, kind: str, about: int = 0) -> int:
        self.records.append((kind, about))
        return len(self.records)

    def batch(self) -> None:
        self.answers[self.add("batch")] = self.version

    def reload(self) -> None:
        self.version += 1
        batch = sum(kind == "batch" for kind, _ in self.records)
        self.core.reloaded(self.version, self.add("dictionary", batch), batch)

    def commit(self) -> None:
        self.recorded = self.rng.randint(self.recorded, len(self.records))

    def expire(self) -> None:
        self.oldest = self.rng.randint(self.oldest, max(self.oldest, self.recorded))
        for at in [at for at in self.answers if at < self.oldest]:
            del self.answers[at]

    def step(self) -> None:
        """Some records on, as far as they are recorded."""
        due = self.core.due(self.oldest, self.recorded)
        if due is None:
            return
        after, until = due
        assert self.oldest - 1 <= after or after == until
        if after < until:
            after = self.rng.randint(after + 1, min(after + 3, until))
        for at in range(due[0] + 1, after + 1):
            if self.records[at - 1][0] == "batch" and at in self.answers:
                assert self.answers[at] < self.version, "it was matched again before"
                self.answers[at] = self.version
                if self.rng.random() < 0.5:
                    self.add("revision", at)
        self.core.revised(after)
        if after == until:
            self.core.settled()
            self.add("settled")
            assert set(self.answers.values()) <= {self.version}
            self.settled += 1

    def restart(self) -> None:
        """What is not recorded is gone; the core is told of the records that are there."""
        del self.records[self.recorded :]
        for at in [at for at in self.answers if at > self.recorded]:
            del self.answers[at]
        self.core, self.version, reloaded = RevisionCore(), 1, 0
        for at, (kind, about) in enumerate(self.records, 1):
            if kind == "dictionary":
                self.version, reloaded = self.version + 1, at
                self.core.reloaded(self.version, at, about)
            elif kind == "revision":
                self.core.revised(about)
            elif kind == "settled":
                self.core.settled()
        revision = self.core.revision
        # what was matched again without a change, or is not recorded, is matched again
        for at in self.answers:
            done = revision is None or at <= revision.after or at > reloaded
            self.answers[at] = self.version if done else self.version - 1


def test_every_kept_batch_is_matched_again_once_and_none_else():
    weights = [6, 4, 6, 6, 1, 1, 0.5]
    for seed in range(200):
        stream = Stream(seed)
        steps = [stream.batch, stream.commit, stream.step, stream.step, stream.reload]
        steps += [stream.expire, stream.restart]
        for _ in range(200):
            stream.rng.choices(steps, weights)[0]()
        while stream.core.revision is not None:
            stream.recorded = len(stream.records)
            stream.step()
        assert set(stream.answers.values()) <= {stream.version}, f"seed {seed}"


def test_the_runs_settle_revisions():
    """So that the test above tests something."""
    streams = [Stream(seed) for seed in range(20)]
    for stream in streams:
        for _ in range(4):
            stream.batch()
            stream.reload()
            stream.recorded = len(stream.records)
            while stream.core.revision is not None:
                stream.step()
    assert all(stream.settled == 4 for stream in streams)


def test_nothing_is_due_before_the_dictionary_is_recorded():
    core = RevisionCore()
    assert core.due(1, 9) is None
    core.reloaded(2, 10, 8)
    assert core.due(1, 9) is None
    assert core.due(1, 10) == (0, 9)
    core.revised(4)
    core.revised(3)
    assert core.due(1, 12) == (4, 9)
    assert core.due(7, 12) == (6, 9)
    # nothing of it is kept any more
    assert core.due(20, 22) == (9, 9)
    # another dictionary: all over again
    core.reloaded(3, 15, 12)
    assert core.revision == Revision(3, 15, 12)
    core.settled()
    assert core.due(1, 20) is None


def test_kept_batches_wait_for_others_but_for_their_share():
    core = RevisionCore()
    core.reloaded(2, 10, 8)
    assert core.may_go_on(waiting=False)
    assert not core.may_go_on(waiting=True)
    rng = random.Random(1)
    others = own = 0.0
    for _ in range(2000):
        if core.may_go_on(waiting=True):
            seconds = rng.uniform(0.001, 0.02)
            core.took(seconds, waiting=True)
            own += seconds
        seconds = rng.uniform(0.001, 0.05)
        core.waited(seconds)
        others += seconds
    assert own / others == pytest.approx(SHARE, rel=0.02)
    # a long wait saves up little, and what nobody waited for costs nothing
    core.waited(1000)
    core.took(1000, waiting=False)
    assert core.may_go_on(waiting=True)
    core.took(0.3, waiting=True)
    assert not core.may_go_on(waiting=True)
