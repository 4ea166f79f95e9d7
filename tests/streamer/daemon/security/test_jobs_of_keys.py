"""Jobs of a daemon that asks for keys: who may submit, how many, and whose are seen."""

from __future__ import annotations

from contextlib import ExitStack

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


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("jobs")
    job_folder(made)
    return made


@pytest.fixture(scope="module")
def clients(folder):
    """A control connection of each key, by its name."""
    keys = key_folder(folder / "keys", *CLIENTS)
    overrides = [f"jobs.directories=['{folder}/data']", f"jobs.results={folder / 'results'}"]
    with guarded(folder, keys, overrides) as daemon, ExitStack() as stack:
        endpoint = daemon.endpoints["control"]
        yield {
            name: stack.enter_context(Control(endpoint, answer_seconds=DEADLINE, keys=own))
            for name, own in keys.items()
        }


def submit(client, folder):
    """A job that takes long; its number."""
    return client.submit(LONG, f"{folder}/data")["id"]


def test_a_key_sees_its_own_jobs(clients, folder):
    ann, ben, chief = clients["ann"], clients["ben"], clients["chief"]
    job = submit(ann, folder)
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


def test_what_is_not_allowed_is_denied(clients, folder):
    watcher, before = clients["watcher"], len(clients["all"].jobs())
    assert watcher.jobs() == []
    for call in (lambda: submit(watcher, folder), lambda: watcher.cancel("x")):
        with pytest.raises(RefusedError, match="the key 'watcher' may not ask for") as caught:
            call()
        assert caught.value.reason == "denied"
    assert len(clients["all"].jobs()) == before


def test_jobs_of_a_key_are_limited(clients, folder):
    ann, ben = clients["ann"], clients["ben"]
    jobs = [submit(ann, folder) for _ in range(2)]
    with pytest.raises(RefusedError, match="the key 'ann' has 2 jobs that wait or run") as caught:
        submit(ann, folder)
    assert caught.value.reason == "denied"
    # others have their own
    submit(ben, folder)
    ann.cancel(jobs[1])
    third = submit(ann, folder)
    with pytest.raises(RefusedError, match="its limit"):
        ann.retry(jobs[1])
    change(folder / "keys", "ann", jobs=3)

    def runs_again():
        try:
            return ann.retry(jobs[1])
        except RefusedError:
            return None

    until(runs_again, "the new limit")
    assert ann.job(third)["state"] == ann.job(jobs[1])["state"] == "waiting"
