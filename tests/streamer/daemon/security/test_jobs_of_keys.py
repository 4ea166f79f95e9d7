"""Jobs of a daemon that asks for keys: who may submit, how many, and whose are seen."""

from __future__ import annotations

import os

import pytest

from streamer.client import Control, RefusedError
from streamer.daemon.core.rights import KeyLimits, Rights
from tests.daemon_kit import DEADLINE
from tests.jobs_kit import LONG, job_folder, wait_for_job
from tests.keys_kit import change, guarded, key_folder
from tests.waiting import until

pytestmark = pytest.mark.whole

OWN = ("submit", "jobs", "job", "cancel", "retry", "result")
CLIENTS = (
    Rights("ann", control=OWN, limits=KeyLimits(jobs=2)),
    Rights("ben", control=OWN),
    Rights("chief", control=("jobs", "job", "cancel", "all-jobs")),
    Rights("watcher", control=("status", "jobs")),
)


@pytest.fixture
def keys(tmp_path):
    return key_folder(tmp_path / "keys", *CLIENTS)


@pytest.fixture
def daemon(tmp_path, keys, monkeypatch):
    job_folder(tmp_path)
    data = tmp_path / "data"
    monkeypatch.chdir(data)
    overrides = [f"jobs.directories=['{data}']", f"jobs.results={tmp_path / 'results'}"]
    with guarded(tmp_path, keys, overrides) as made:
        yield made


@pytest.fixture
def clients(daemon, keys):
    """A control connection of each key, by its name."""
    made = {
        name: Control(daemon.endpoints["control"], answer_seconds=DEADLINE, keys=own)
        for name, own in keys.items()
    }
    yield made
    for one in made.values():
        one.close()


def test_a_key_sees_its_own_jobs(clients):
    ann, ben, chief = clients["ann"], clients["ben"], clients["chief"]
    job = ann.submit(LONG, os.getcwd())["id"]
    assert ben.jobs() == []
    for command in ("job", "cancel", "retry", "result"):
        with pytest.raises(RefusedError, match="there is no job") as caught:
            ben.request(command, job=job)
        with pytest.raises(RefusedError) as other:
            ben.request(command, job="ffffffff")
        # as for one that there is not
        assert caught.value.reason == other.value.reason
        assert str(caught.value) == str(other.value).replace("ffffffff", job)
    assert [(one["id"], one["owner"]) for one in chief.jobs()] == [(job, "ann")]
    assert [one["id"] for one in clients["all"].jobs()] == [job]
    chief.cancel(job)
    assert wait_for_job(ann, job, "cancelled")["reason"] == "cancelled"


def test_what_is_not_allowed_is_denied(clients):
    watcher = clients["watcher"]
    assert watcher.jobs() == []
    for call in (lambda: watcher.submit(LONG, os.getcwd()), lambda: watcher.cancel("x")):
        with pytest.raises(RefusedError, match="the key 'watcher' may not ask for") as caught:
            call()
        assert caught.value.reason == "denied"
    assert clients["all"].jobs() == []


def test_jobs_of_a_key_are_limited(clients, tmp_path):
    ann, ben = clients["ann"], clients["ben"]
    jobs = [ann.submit(LONG, os.getcwd())["id"] for _ in range(2)]
    with pytest.raises(RefusedError, match="the key 'ann' has 2 jobs that wait or run") as caught:
        ann.submit(LONG, os.getcwd())
    assert caught.value.reason == "denied"
    # others have their own
    ben.submit(LONG, os.getcwd())
    ann.cancel(jobs[1])
    third = ann.submit(LONG, os.getcwd())["id"]
    with pytest.raises(RefusedError, match="its limit"):
        ann.retry(jobs[1])
    change(tmp_path / "keys", "ann", jobs=3)

    def runs_again():
        try:
            return ann.retry(jobs[1])
        except RefusedError:
            return None

    until(runs_again, "the new limit")
    assert ann.job(third)["state"] == ann.job(jobs[1])["state"] == "waiting"
