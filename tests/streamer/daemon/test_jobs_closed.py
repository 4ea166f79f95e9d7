"""What a client that may submit jobs cannot reach: other files, and the daemon itself."""

from __future__ import annotations

import errno
import os
from contextlib import nullcontext
from pathlib import Path

import pyarrow as pa
import pytest

from streamer.client import RefusedError
from streamer.daemon.jobs.job_requests import check_inputs
from streamer.daemon.jobs.jobs_worker import JobProcess, JobResults
from streamer.protocol.header import PROTOCOL, WireError, pack, seal
from tests.daemon_kit import controlled
from tests.jobs_kit import LONG, job_folder, processes_of_jobs, wait_for_job
from tests.waiting import descriptors_left, until

pytestmark = pytest.mark.whole


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """The control of a daemon with jobs, and its folder."""
    folder = tmp_path_factory.mktemp("jobs")
    path = job_folder(folder)
    with controlled(path) as (_, control):
        yield control, folder


def test_options_in_values_of_others_do_nothing(shared):
    """The program takes ``--debug`` out of a line: what follows it must not change its meaning."""
    control, folder = shared
    outside = folder / "outside.fa"
    content = outside.read_bytes()
    for line in (
        ["--tm", "--debug", "one.fa", "--tm", "--debug", "--tm", str(outside), "--tm", "1-99"],
        ["--tm", "--debug", "--tm", f"--output={outside}", "--tm", "1-99", "one.fa"],
    ):
        job = control.submit(["primer", "-k", "2", *line, "other.fa"], f"{folder}/data")["id"]
        assert wait_for_job(control, job, "done", "failed")["reason"] == ""
        with pa.OSFile(control.result(job)[0]) as file:
            found = pa.ipc.open_file(file).read_all().column("alpha").unique().to_pylist()
        assert found == ["one"]
    assert outside.read_bytes() == content


def test_files_of_the_daemon_are_no_inputs(tmp_path):
    """Also where they lie below the folders of jobs; results are of those who submitted."""
    path = job_folder(tmp_path)
    with controlled(path, [f"jobs.directories=['{tmp_path}']"]) as (_, control):
        job = control.submit(["lcs", "one.fa", "other.fa"], f"{tmp_path}/data")["id"]
        wait_for_job(control, job, "done")
        (tmp_path / "link").symlink_to(tmp_path / "results")
        for name in (f"results/{job}.arrow", "results/jobs.db", f"link/{job}.arrow", "journal/x"):
            with pytest.raises(RefusedError, match=f"{name}: belongs to the daemon") as caught:
                control.submit(["lcs", "--text", "data/one.fa", name], str(tmp_path))
            assert caught.value.reason == "denied"


def test_the_innermost_folder_decides_whose_a_file_is(tmp_path):
    data = tmp_path / "state" / "data"
    data.mkdir(parents=True)
    (data / "a.fa").touch()
    (data.parent / "b.fa").touch()
    for given, allowed, private, fits in (
        ("data/a.fa", [data], data.parent, True),
        ("data/a.fa", [data, tmp_path], data.parent, True),
        ("b.fa", [data, tmp_path], data.parent, False),
        ("data/a.fa", [tmp_path], data.parent, False),
        ("data/a.fa", [data], data, False),
        ("data/a.fa", ["/"], data / "a.fa", False),
        ("b.fa", ["/"], data, True),
    ):
        is_own = nullcontext() if fits else pytest.raises(WireError, match="belongs to the daemon")
        with is_own:
            check_inputs([given], str(data.parent), [*map(str, allowed)], [str(private)])


def test_a_job_runs_where_nobody_else_writes(shared):
    """numba reads ``.numba_config.yaml`` in the working directory, which may name code."""
    control, folder = shared
    job = control.submit(LONG, f"{folder}/data")["id"]
    until(lambda: control.job(job)["progress"] > 0, "progress")
    (pid,) = processes_of_jobs(folder / "results")
    process = Path(f"/proc/{pid}")
    assert os.readlink(process / "cwd") == "/"
    # without memory it is ended, not the daemon
    assert int((process / "oom_score_adj").read_text()) == 1000
    control.cancel(job)


def test_an_id_of_nested_arrays_is_refused(shared):
    control, _ = shared
    before = len(control.jobs())
    deep = b"\x91" * 1000 + b"\x90"
    head = pack({"v": PROTOCOL, "id": 1, "command": "job"})
    # one more key in the map
    request = bytes([head[0] + 1]) + head[1:] + b"\xa3job" + deep
    control._post(seal([request]))
    with pytest.raises(RefusedError, match="there is no job of type list"):
        control._reply(1)
    assert control.status()["state"] == "running"
    assert len(control.jobs()) == before


def test_a_process_that_could_not_be_ended_is_not_begun(monkeypatch):
    def none_left(pid):
        begun.append(pid)
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    begun: list[int] = []
    monkeypatch.setattr(os, "pidfd_open", none_left)
    before = sorted(os.listdir("/proc/self/fd"))
    with pytest.raises(OSError, match="Too many open files"):
        JobProcess(["lcs", "a", "b"], shown_from="", device_bytes=0, most_bytes=1 << 20, nice=0)
    assert sorted(os.listdir("/proc/self/fd")) == before
    assert not Path(f"/proc/{begun[0]}").exists()


def test_a_result_that_cannot_be_looked_for_stays(tmp_path):
    """Without a descriptor for the folder; the next daemon removes it."""
    results = JobResults(str(tmp_path))
    part = tmp_path / ".0000000a.arrow.1.part"
    for file in (results.path("0000000a"), part):
        file.touch()
    with descriptors_left(0):
        results.remove("0000000a")
    assert not results.path("0000000a").exists()
    results.remove("0000000a")
    assert not part.exists()
    results.close()
