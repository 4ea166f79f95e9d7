"""The states of jobs: against what is expected of any order of events."""

from __future__ import annotations

import random

import pytest

from streamer.daemon.core.jobs import (
    AGAIN,
    CANCELLED,
    DONE,
    ENDED,
    FAILED,
    INTERRUPTED,
    KILL_SECONDS,
    KILLED,
    MAX_ACTIVE,
    RUNNING,
    WAITING,
    Job,
    JobsCore,
    Owner,
)
from streamer.protocol.wire import Reason, WireError


def job(id_="a", owner="me", **fields):
    return Job(id_, ("lcs", "x", "y"), "", Owner(owner, owner), 1.0, **fields)


def core(*, at_once=1, kept=100, keep_bytes=1 << 40, stored=()):
    return JobsCore(at_once, kept, keep_bytes, stored, 5.0)


def started(made):
    return [one.id for one in made.steps().start]


def test_jobs_run_in_turn():
    made = core(at_once=2)
    for id_ in "abc":
        made.submit(job(id_))
    assert started(made) == ["a", "b"]
    made.ended("b", "", 10, 2.0)
    steps = made.steps()
    assert [one.id for one in steps.start] == ["c"]
    assert [(one.id, one.state, one.size, one.progress) for one in steps.store] == [
        ("b", DONE, 10, 1.0)
    ]


def test_a_failure_has_its_reason_in_one_line():
    made = core()
    made.submit(job())
    made.steps()
    made.ended("a", "no\nroom\x1b[31m", 0, 2.0)
    (found,) = made.jobs
    assert (found.state, found.reason, found.ended) == (FAILED, "no room?[31m", 2.0)


def test_a_waiting_job_is_cancelled_at_once():
    made = core()
    made.submit(job("a"))
    made.submit(job("b"))
    made.steps()
    made.cancel(made.job("b"), 2.0, 0.0)
    steps = made.steps()
    assert (steps.interrupt, [one.id for one in steps.store]) == ([], ["b"])
    assert made.job("b").state == CANCELLED
    # the client that has got no reply asks again
    made.cancel(made.job("b"), 3.0, 0.0)
    assert (made.job("b").state, made.job("b").ended) == (CANCELLED, 2.0)
    assert made.steps().store == []


def test_a_running_job_is_interrupted_then_killed_once():
    made = core()
    made.submit(job())
    made.steps()
    for _ in range(2):
        made.cancel(made.job("a"), 2.0, 10.0)
    assert made.steps().interrupt == ["a"]
    assert made.tick(10.0 + KILL_SECONDS / 2) == 10.0 + KILL_SECONDS
    assert made.steps().kill == []
    for _ in range(2):
        assert made.tick(10.0 + KILL_SECONDS) is None
    assert made.steps().kill == ["a"]
    made.ended("a", "its process was ended by SIGKILL", 0, 3.0)
    assert (made.job("a").state, made.job("a").reason) == (
        CANCELLED,
        "cancelled, killed: it did not end by itself",
    )


def test_a_job_that_is_done_before_it_hears_of_its_end_is_done():
    made = core()
    made.submit(job())
    made.cancel(made.job("a"), 2.0, 10.0)
    made.ended("a", "", 7, 3.0)
    assert made.job("a").state == DONE
    assert made.tick(100.0) is None
    with pytest.raises(WireError, match="is done already") as caught:
        made.cancel(made.job("a"), 4.0, 11.0)
    assert caught.value.reason == Reason.CONFLICT


def test_the_end_of_the_daemon():
    made = core()
    made.submit(job("a"))
    made.submit(job("b"))
    made.steps()
    made.close(10.0)
    assert made.steps().interrupt == ["a"]
    with pytest.raises(WireError) as caught:
        made.submit(job("c"))
    assert caught.value.reason == Reason.DRAINING
    made.ended("a", "interrupted", 0, 3.0)
    assert (made.job("a").state, made.job("a").reason) == (INTERRUPTED, ENDED)
    assert (made.job("b").state, started(made)) == (WAITING, [])


def test_what_the_next_daemon_finds():
    stored = [job("a", state=RUNNING), job("b", state=DONE, size=3), job("c")]
    made = core(stored=stored)
    assert (made.job("a").state, made.job("a").reason, made.job("a").ended) == (
        INTERRUPTED,
        KILLED,
        5.0,
    )
    made.begin()
    assert started(made) == ["c"]
    made.retry(made.job("a"))
    assert (made.job("a").state, made.job("a").attempt) == (WAITING, 2)
    made.retry(made.job("a"), attempt=2)
    assert made.job("a").attempt == 2
    with pytest.raises(WireError, match="only one that is failed, cancelled or interrupted runs"):
        made.retry(made.job("a"), attempt=3)
    made.cancel(made.job("a"), 6.0, 6.0)
    for late in (1, 2):
        made.retry(made.job("a"), attempt=late)
        assert (made.job("a").state, made.job("a").attempt) == (CANCELLED, 2)
    made.retry(made.job("a"), attempt=3)
    assert (made.job("a").state, made.job("a").attempt) == (WAITING, 3)
    with pytest.raises(WireError, match="only one that is failed, cancelled or interrupted runs"):
        made.retry(made.job("b"))


def test_limits():
    made = core()
    made.submit(job("a"), 2)
    made.submit(job("b"), 2)
    with pytest.raises(WireError, match="the key 'me' has 2 jobs that wait or run") as caught:
        made.submit(job("c"), 2)
    assert caught.value.reason == Reason.DENIED
    made.submit(job("d", "you"), 1)
    made.ended("a", "", 1, 2.0)
    made.submit(job("c"), 2)
    for number in range(MAX_ACTIVE - 3):
        made.submit(job(str(number)))
    with pytest.raises(WireError, match="try again later") as caught:
        made.submit(job("e"))
    assert caught.value.reason == Reason.BUSY


@pytest.mark.parametrize(("kept", "keep_bytes"), [(2, 1000), (100, 25)])
def test_the_oldest_are_forgotten(kept, keep_bytes):
    made = core(kept=kept, keep_bytes=keep_bytes)
    for number, id_ in enumerate("abcd"):
        made.submit(job(id_))
        made.ended(id_, "", 10, float(number))
    assert made.steps().delete == ["a", "b"]
    made.submit(job("large"))
    made.ended("large", "", 10_000, 9.0)
    assert "large" in [one.id for one in made.jobs]


@pytest.mark.parametrize("seed", range(20))
def test_any_order_of_events(seed):
    """Never more run than may, each start ends once, and all that ends is stored."""
    rng = random.Random(seed)
    made, running, stored, clock = core(at_once=3, kept=5), set(), {}, 0.0
    for number in range(300):
        clock += rng.random() * 3
        known = made.jobs
        match rng.randrange(5):
            case 0 | 1:
                made.submit(job(f"j{number}"))
            case 2 if known:
                one = rng.choice(known)
                if one.state in (WAITING, RUNNING):
                    made.cancel(one, clock, clock)
            case 3 if running:
                id_ = rng.choice(sorted(running))
                running.remove(id_)
                made.ended(id_, rng.choice(["", "why"]), 1, clock)
            case 4 if known:
                one = rng.choice(known)
                if one.state in AGAIN:
                    made.retry(one)
        made.tick(clock)
        steps = made.steps()
        assert {*steps.interrupt, *steps.kill} <= running
        for one in steps.start:
            assert one.id not in running
            running.add(one.id)
            made.begun(one.id, clock)
        steps.store += made.steps().store
        stored |= {one.id: one.state for one in steps.store}
        for id_ in steps.delete:
            del stored[id_]
        assert len(running) <= 3
        assert running == {one.id for one in made.jobs if one.state == RUNNING}
        assert stored == {one.id: one.state for one in made.jobs}
        ended = [one for one in made.jobs if one.state not in (WAITING, RUNNING)]
        assert len(ended) <= 5
        assert sum(made.counts().values()) == len(made.jobs)


def test_a_clock_that_is_set_back_does_not_make_the_last_job_the_oldest():
    made = core(kept=2)
    for id_, now in zip("abc", (1000.0, 2000.0, 3.0), strict=True):
        made.submit(job(id_))
        made.ended(id_, "", 1, now)
    assert [one.id for one in made.jobs] == ["b", "c"]
    # as it was stored, and one that ran when the daemon was killed ends last
    again = core(kept=2, stored=[job("r", state=RUNNING), *made.jobs])
    assert {one.id for one in again.jobs} == {"r", "b"}


def test_a_key_is_that_of_an_owner():
    made = core(stored=[job("a", key="k", state="done", ended=1.0), job("b", "other", key="k")])
    made.submit(job("c"))
    assert [made.keyed(Owner(name, ""), "k").id for name in ("me", "other")] == ["a", "b"]
    assert made.keyed(Owner("third", ""), "k") is None
    assert made.keyed(Owner("me", ""), "") is None


def test_an_id_of_any_type_is_no_job():
    nested = []
    for _ in range(2000):
        nested = [nested]
    for given in (None, 7, nested, {"a": nested}, "x" * 1000):
        with pytest.raises(WireError, match="there is no job") as caught:
            core().job(given)
        assert caught.value.reason == Reason.MALFORMED
        assert len(str(caught.value)) < 80
