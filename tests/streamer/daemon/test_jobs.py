"""Jobs of a daemon: rows, refusals, their end and that of the daemon, what they cannot reach."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path

import msgpack
import pyarrow as pa
import pytest
import zmq

from streamer.cli.app import main
from streamer.cli.jobs import write_rows
from streamer.client import Control, RefusedError
from streamer.daemon.jobs.job_requests import check_inputs
from streamer.daemon.jobs.jobs_worker import JobProcess, JobResults
from streamer.errors import StreamerError
from streamer.protocol.wire import PROTOCOL, WireError, pack, seal
from tests.daemon_kit import DEADLINE, controlled, process, running, settings, wait_for_line
from tests.jobs_kit import LONG, PATTERN, job_folder, processes_of_jobs, wait_for_job
from tests.waiting import beside, descriptors_left, until
from trie.cpu.machine import half_of_cores

pytestmark = [pytest.mark.whole, pytest.mark.usefixtures("forked_children")]


@pytest.fixture
def path(tmp_path, monkeypatch):
    made = job_folder(tmp_path)
    monkeypatch.chdir(tmp_path / "data")
    return made


@pytest.fixture
def results(tmp_path):
    return tmp_path / "results"


@pytest.fixture
def daemon(path):
    with running(path) as made:
        yield made


@pytest.fixture
def control(daemon):
    with Control(daemon.endpoints["control"], answer_seconds=DEADLINE) as made:
        yield made


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """The control of a daemon for tests that look at their own jobs only, and its folder."""
    folder = tmp_path_factory.mktemp("jobs")
    with controlled(job_folder(folder)) as (_, control):
        yield control, folder


@pytest.fixture
def common(shared, monkeypatch):
    """The control of the shared daemon, in the folder of its files."""
    control, folder = shared
    monkeypatch.chdir(folder / "data")
    return control


def submit(control, *line):
    return control.submit(line, os.getcwd())["id"]


LINES = [
    ["asm", "texts.fa", "-k", "2", "--patterns", "patterns.fa"],
    ["asm", "texts.fa", "-k", "1", "--pattern", PATTERN, "--report", "best", "--format", "jsonl"],
    ["hamming", "texts.fa", "-k", "3", "--patterns", "patterns.fa", "--strands", "forward"],
    ["hamming", "texts.fa", "-k", "0", "--pattern", "CCCCCCCCCCCCCCCCC"],
    ["primer", "one.fa", "other.fa", "-k", "4"],
    ["primer", "one.fa", "other.fa", "-k", "2", "--strands", "both", "--tm", "40-70"],
    ["primer", "one.fa", "other.fa", "-k", "2", "--strands", "both", "--pairs", "2"],
    ["lcs", "one.fa", "other.fa", "--identity"],
    ["lcs", "--text", "one.fa", "other.fa", "--format", "jsonl"],
]


@pytest.mark.parametrize("lines", [LINES[::2], pytest.param(LINES[1::2], marks=pytest.mark.slow)])
def test_rows_are_those_of_the_command(daemon, results, capfdbinary, lines):
    at = ["--at", daemon.endpoints["control"]]
    for line in lines:
        assert main([*line, "--quiet"]) == 0
        expected = capfdbinary.readouterr().out
        assert main(["submit", *at, "--wait", *line]) == 0
        assert capfdbinary.readouterr().out == expected, line
        assert expected
    # to a file, as Arrow, and over the socket
    assert main(["submit", *at, "--wait", *line, "-o", "rows.gz"]) == 0
    assert subprocess.run(["gzip", "-dc", "rows.gz"], capture_output=True).stdout == expected
    with Control(daemon.endpoints["control"]) as control:
        jobs = control.jobs()
        assert [job["state"] for job in jobs] == ["done"] * (len(lines) + 1)
        for job in jobs:
            place, size = control.result(job["id"])
            assert Path(place).stat().st_size == size == job["bytes"]
            parts = b"".join(control.result_parts(job["id"]))
            assert parts == Path(place).read_bytes()
            assert main(["jobs", *at, job["id"], "--result", "--format", "arrow"]) == 0
            assert capfdbinary.readouterr().out == parts
    assert {file.suffix for file in results.iterdir()} <= {".arrow", ".db", ".db-wal", ""}


def test_whoever_waits_is_told_the_id_and_can_have_the_rows_again(
    common, shared, capfd, monkeypatch
):
    """Also from another machine, which does not see the daemon's files."""
    at = ["--at", f"ipc://{shared[1]}/control"]
    assert main(["submit", *at, "--wait", *LINES[0]]) == 0
    expected, said = capfd.readouterr()
    job = common.jobs()[-1]["id"]
    assert said == f"streamer: job {job}\n"
    assert main(["submit", *at, "--wait", *LINES[0], "--quiet"]) == 0
    assert capfd.readouterr() == (expected, "")
    monkeypatch.setattr("streamer.protocol.endpoints.is_local", lambda endpoint: False)
    write_rows(common, job, None, "tsv")
    assert capfd.readouterr().out == expected


REFUSED = [
    (["lcs", "one.fa", "../outside.fa"], "denied", "../outside.fa: is not below jobs.direct"),
    (["lcs", "one.fa", "/etc/passwd"], "denied", "/etc/passwd: is not below jobs.directories"),
    (["lcs", "one.fa", "/proc/self/environ"], "denied", "is not below"),
    (["lcs", "one.fa", "/nowhere/at/all"], "denied", "is not below jobs.directories"),
    (["lcs", "one.fa", "link.fa"], "denied", "link.fa: .* a link leads out of them"),
    (["lcs", "one.fa", "folder/outside.fa"], "denied", "a link leads out of them"),
    (["lcs", "one.fa", "-"], "denied", "a job has no standard input"),
    (["lcs", "one.fa", "missing.fa"], "sources", "missing.fa: cannot be read: no such file"),
    (["lcs", "one.fa", "."], "sources", "is not a regular file"),
    (["lcs", "one.fa", "fifo"], "sources", "is not a regular file"),
    (["lcs", "one.fa"], "malformed", "Missing argument 'B'"),
    (["lcs", "one.fa", "other.fa", "--dance"], "malformed", "No such option: --dance"),
    (["lcs", "one.fa", "other.fa", "-o", "x"], "malformed", "--output: for clients"),
    (["lcs", "one.fa", "other.fa", "--output=x"], "malformed", "--output: for clients"),
    (["lcs", "one.fa", "other.fa", "--format", "tsv"], "malformed", "--format: for clients"),
    (["lcs", "one.fa", "other.fa", "--blocks", "x"], "malformed", "--blocks: a job only gives"),
    (["lcs", "--help"], "malformed", "No such option: --help"),
    (["lcs", "one.fa", "other.fa", "--debug"], "malformed", "No such option: --debug"),
    (["asm", "texts.fa", "-k", "many"], "malformed", "Invalid value for '-k'"),
    (["lcs", "one.fa", "other.fa", "--device", "cuda"], "denied", "jobs.device_bytes is 0"),
    (["match", "one.fa"], "malformed", "no job: 'match' .known: asm, hamming, primer, lcs"),
    (["lcs", "one.fa", "other\0.fa"], "malformed", "NUL"),
    (["lcs", "one.fa", "x" * 20_000], "too-large", "has more than 16384 bytes"),
    (["lcs", *[""] * 20_000], "too-large", "has more than 16384 bytes"),
    ([], "malformed", "field 'line' must be"),
]


def test_what_is_refused(common, shared):
    folder, before = shared[1], common.jobs()
    stored = {*folder.glob("results/*.arrow")}
    Path("link.fa").symlink_to(folder / "outside.fa")
    Path("folder").symlink_to(folder)
    os.mkfifo("fifo")
    for line, reason, message in REFUSED:
        with pytest.raises(RefusedError, match=message) as caught:
            submit(common, *line)
        assert caught.value.reason == reason, line
    assert common.jobs() == before
    assert {*folder.glob("results/*.arrow")} == stored


def test_relative_paths_start_from_the_folder_of_the_client(common):
    with pytest.raises(RefusedError, match="is a relative path, but no folder"):
        common.submit(LINES[-2])
    with pytest.raises(RefusedError, match="must be an absolute path"):
        common.submit(LINES[-2], "data")
    with pytest.raises(RefusedError, match="field 'folder' has 4096 bytes or more"):
        common.submit(LINES[-2], "/" * 4096)
    one, other = (str(Path(name).resolve()) for name in ("one.fa", "other.fa"))
    job = common.submit(["lcs", one, other], "/nowhere")["id"]
    assert wait_for_job(common, job, "done", "failed")["reason"] == ""


def test_a_failure_has_the_words_of_the_command(common):
    Path("empty.fa").touch()
    job = submit(common, "lcs", "one.fa", "empty.fa")
    found = wait_for_job(common, job, "failed", "done")
    assert found["reason"] == "empty.fa: holds no record; one is needed"
    with pytest.raises(RefusedError, match=f"job {job} has no result, it is failed: empty.fa"):
        common.result(job)
    assert common.retry(job)["attempt"] == 2
    wait_for_job(common, job, "failed")


def test_jobs_run_one_at_a_time_and_are_cancelled(control, daemon, results, capsys):
    first, second = submit(control, *LONG), submit(control, *LONG)
    # many jobs come in pages
    long = ["asm", "texts.fa", "-k", "0", "--pattern=" + "ACGT" * 3900]
    more = [submit(control, *long) for _ in range(9)]
    assert control.request("jobs")["next"] is not None
    assert [job["id"] for job in control.jobs()] == [first, second, *more]
    for job in more:
        control.cancel(job)
    wait_for_job(control, first, "running")
    until(lambda: control.job(first)["progress"] > 0, "progress")
    (pid,) = processes_of_jobs(results)
    own = os.getpriority(os.PRIO_PROCESS, 0)
    assert os.getpriority(os.PRIO_PROCESS, pid) == min(own + 1, 19)
    assert os.sched_getaffinity(pid) == half_of_cores(os.sched_getaffinity(0))
    # numba reads ``.numba_config.yaml`` in the working directory, which may name code
    assert os.readlink(f"/proc/{pid}/cwd") == "/"
    # without memory it is ended, not the daemon
    assert int(Path(f"/proc/{pid}/oom_score_adj").read_text()) == 1000
    assert control.job(second)["state"] == "waiting"
    assert control.status()["jobs"]["running"] == control.status()["jobs"]["waiting"] == 1
    at = ["--at", daemon.endpoints["control"]]
    assert main(["jobs", *at, "--cancel", second]) == 0
    assert main(["jobs", *at, "--cancel", "--wait", first]) == 0
    capsys.readouterr()
    assert main(["jobs", *at, "--format", "tsv"]) == 0
    rows = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    # on a busy machine the first one is killed in the end
    assert [(row[0], row[1], row[5].partition(",")[0]) for row in rows[1:]] == [
        (first, "cancelled", "cancelled"),
        *[(job, "cancelled", "cancelled before it began") for job in (second, *more)],
    ]
    assert not processes_of_jobs(results)
    assert not [*results.glob("*arrow*")]
    assert main(["jobs", *at, "--wait", first]) == 1
    assert f"error: job {first} is cancelled: cancelled" in capsys.readouterr().err


def test_a_job_that_does_not_end_is_killed(common, shared):
    results, job = shared[1] / "results", submit(common, *LONG)
    until(lambda: common.job(job)["progress"] > 0, "progress")
    (pid,) = processes_of_jobs(results)
    # a stopped process does nothing about SIGINT
    os.kill(pid, signal.SIGSTOP)
    common.cancel(job)
    found = wait_for_job(common, job, "cancelled")
    assert found["reason"] == "cancelled, killed: it did not end by itself"
    assert found["ended"] - found["started"] > 4.9
    assert not [*results.glob(f"*{job}*")]


def test_a_daemon_whose_caller_ignores_the_ends_of_processes(path, tmp_path):
    code = (
        "import signal, sys; signal.signal(signal.SIGCHLD, signal.SIG_IGN);"
        "from streamer.cli.app import main; sys.exit(main(sys.argv[1:]))"
    )
    Path("empty.fa").touch()
    with process(["run", "-c", path, "--set", "log.format='json'"], code) as child:
        wait_for_line(child, "ready")
        with Control(f"ipc://{tmp_path}/control", answer_seconds=DEADLINE) as control:
            job = submit(control, "lcs", "one.fa", "empty.fa")
            found = wait_for_job(control, job, "failed", "done")
    assert found["reason"] == "empty.fa: holds no record; one is needed"


def test_a_killed_job_has_failed(common, shared):
    results, unnamed = shared[1] / "results", signal.SIGRTMIN + 6
    for number, name in ((signal.SIGKILL, "SIGKILL"), (unnamed, f"signal {unnamed}")):
        job = submit(common, *LONG)
        until(lambda: processes_of_jobs(results), "the process")
        os.kill(processes_of_jobs(results)[0], number)
        assert f"ended by {name}" in wait_for_job(common, job, "failed")["reason"]
        assert not [*results.glob(f"*{job}*")]


def test_a_lower_limit_on_files_is_not_raised():
    """Which only root can: without that no job would run."""
    code = (
        "import resource as r; from streamer.cli.job_child import limit_files;"
        f"r.setrlimit(r.RLIMIT_FSIZE, ({1 << 20}, {1 << 30}));"
        f"limit_files({1 << 40}); print(r.getrlimit(r.RLIMIT_FSIZE));"
        "limit_files(4096); print(r.getrlimit(r.RLIMIT_FSIZE))"
    )
    with process([], code) as child:
        out, err = child.communicate(timeout=DEADLINE)
    assert out.split("\n")[:2] == [str((1 << 30, 1 << 30)), "(4096, 4096)"], err


def test_jobs_are_interrupted_when_the_daemon_drains(path, results):
    with controlled(path) as (_, control):
        ended = submit(control, *LINES[-2])
        wait_for_job(control, ended, "done")
        jobs = [submit(control, *LONG) for _ in range(2)]
        until(lambda: control.job(jobs[0])["progress"] > 0, "progress")
        control.drain()
        until(lambda: not processes_of_jobs(results), "the end of the job")
    assert [file.name for file in results.glob("*arrow*")] == [f"{ended}.arrow"]
    with controlled(path) as (_, control):
        found = {job["id"]: (job["state"], job["reason"]) for job in control.jobs()}
        assert found[ended] == ("done", "")
        state, reason = found[jobs[0]]
        assert state == "interrupted"
        # on a busy machine it does not end in time by itself
        assert reason.startswith("the daemon ended while it ran")
        # it waited, and has its turn now
        assert found[jobs[1]][0] == "running"
        assert len(b"".join(control.result_parts(ended))) == control.result(ended)[1]
        assert control.cancel(jobs[1])["id"] == jobs[1]


def test_a_kill_of_the_daemon_leaves_an_interrupted_job_that_runs_again(path, results, tmp_path):
    at = f"ipc://{tmp_path}/control"
    with process(["run", "-c", path, "--set", "log.format='json'"]) as child:
        wait_for_line(child, "ready")
        with Control(at, answer_seconds=DEADLINE) as control:
            job = submit(control, *LONG)
            until(lambda: control.job(job)["progress"] > 0, "progress")
            (pid,) = processes_of_jobs(results)
            assert [*results.glob(f".{job}.arrow.*.part")]
        child.kill()
        child.wait(DEADLINE)
        until(lambda: not Path(f"/proc/{pid}").exists(), "the end of the job with its daemon")
    with process(["run", "-c", path, "--set", "log.format='json'"]) as child:
        wait_for_line(child, "ready")
        with Control(at, answer_seconds=DEADLINE) as control:
            found = control.job(job)
            assert (found["state"], found["attempt"]) == ("interrupted", 1)
            assert found["reason"] == "the daemon was killed while it ran"
            assert not [*results.glob("*arrow*")]
            # it would take minutes: shorter files in their place
            for name in ("long_a.fa", "long_b.fa"):
                Path(name).write_bytes(Path("one.fa").read_bytes())
            assert main(["jobs", "--at", at, "--retry", "--wait", job]) == 0
            assert (control.job(job)["state"], control.job(job)["attempt"]) == ("done", 2)
            assert processes_of_jobs(results) == []
            job = submit(control, "lcs", "one.fa", "other.fa")
        child.send_signal(signal.SIGTERM)
        assert child.wait(DEADLINE) == 0


def test_without_a_journal_jobs_end_with_the_daemon(path, results):
    with controlled(path, ["journal.durability=none"]) as (_, control):
        wait_for_job(control, submit(control, *LINES[-2]), "done")
    assert [file.name for file in results.iterdir()] == ["lock"]
    with controlled(path, ["journal.durability=none"]) as (_, control):
        assert control.jobs() == []


def test_a_daemon_without_jobs(tmp_path):
    with controlled(settings(tmp_path, "k = 11\nmode = 'grow'")) as (_, control):
        with pytest.raises(RefusedError, match=r"no jobs: set jobs\.directories") as caught:
            control.jobs()
        assert caught.value.reason == "denied"
        assert control.status()["jobs"] is None


def test_only_the_latest_are_kept(path, results):
    with controlled(path, ["jobs.kept=1"]) as (_, control):
        first, last = (submit(control, *LINES[-2]) for _ in range(2))
        wait_for_job(control, last, "done")
        assert [job["id"] for job in control.jobs()] == [last]
        assert [file.stem for file in results.glob("*.arrow")] == [last]
        with pytest.raises(RefusedError, match=f"there is no job '{first}'"):
            control.job(first)


def test_a_full_disk(path, tmp_path, monkeypatch):
    folder = tmp_path / "small"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", folder]
    if subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("no permission to mount a file system")
    try:
        many = ["asm", "long_a.fa", "-k", "12", "--pattern", PATTERN]
        with controlled(path, [f"jobs.results={folder}"]) as (_, control):
            found = wait_for_job(control, submit(control, *many), "failed", "done")
            assert found["state"] == "failed"
            assert found["reason"].endswith(": cannot write rows: No space left on device")
            assert not [*folder.glob("*arrow*")]
            # there is room for those that follow
            wait_for_job(control, submit(control, *LINES[-2]), "done")
            with (folder / "filler").open("wb", buffering=0) as filler, suppress(OSError):
                while filler.write(bytes(4096)):
                    pass
            assert refusal_of_many(control).reason == "full"
            assert control.status()["state"] == "running"
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


def refusal_of_many(control):
    """What the first of many jobs meets that is not taken."""
    for _ in range(1000):
        try:
            submit(control, *LONG)
        except RefusedError as error:
            return error
    return None


def test_a_result_beyond_the_limit(path, results):
    with controlled(path, [f"jobs.keep_bytes={1 << 20}"]) as (_, control):
        job = submit(control, "asm", "long_a.fa", "-k", "12", "--pattern", PATTERN)
        assert wait_for_job(control, job, "failed", "done")["reason"].endswith("File too large")


def test_one_daemon_has_the_results(path, results):
    with running(path), pytest.raises(StreamerError, match="is in use by another daemon"):
        JobResults(str(results))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["submit", "lcs", "a", "b", "-o", "x"], "output: needs --wait"),
        (["submit", "lcs", "a", "b", "--blocks", "x"], "--blocks: a job only gives rows"),
        (["submit", "lcs", "a", "\udcff"], r"'\udcff' is not UTF-8"),
        (["submit", "dance"], "no job: 'dance' (known: asm, hamming, primer, lcs)"),
        (["jobs", "--cancel"], "--cancel needs the ID of a job"),
        (["jobs", "x", "--cancel", "--result"], "--cancel does not go with --result"),
        (["jobs", "x", "-o", "y"], "--output goes with --result"),
        (["jobs", "--format", "arrow"], "--format arrow goes with --result"),
    ],
)
def test_wrong_use(arguments, message, capsys):
    assert main(arguments) == 2
    assert capsys.readouterr().err == f"streamer: error: {message}\n"


LINE = ["lcs", "one.fa", "other.fa"]


@contextmanager
def between(front, back, lost):
    """Passes messages on; what comes back goes to its client unless ``lost`` says so of it."""
    context = zmq.Context()
    clients, daemon = context.socket(zmq.ROUTER), context.socket(zmq.DEALER)
    clients.bind(front)
    daemon.connect(back)

    def work(stop):
        route = b""
        while not stop.is_set():
            for socket in zmq.select([clients, daemon], [], [], 0.02)[0]:
                frames = socket.recv_multipart()
                if socket is clients:
                    route, *frames = frames
                    daemon.send_multipart(frames)
                elif not lost(msgpack.unpackb(frames[0])):
                    clients.send_multipart([route, *frames])

    try:
        with beside(work):
            yield
    finally:
        context.destroy(linger=0)


def test_what_got_no_reply_is_done_once(path, tmp_path):
    """A submission and a retry, of which the first reply is lost."""
    through = f"ipc://{tmp_path}/through"
    attempts = []

    def lost(reply):
        if "job" not in reply:
            return False
        attempts.append(reply["job"]["attempt"])
        return attempts.count(attempts[-1]) == 1

    open("empty.fa", "w").close()
    with (
        controlled(path) as (daemon, direct),
        between(through, daemon.endpoints["control"], lost),
        Control(through, answer_seconds=1) as control,
    ):
        job = control.submit(["lcs", "one.fa", "empty.fa"], os.getcwd())["id"]
        assert [job] == [known["id"] for known in direct.jobs()]
        assert attempts.count(1) > 1
        wait_for_job(direct, job, "failed")
        assert control.retry(job)["attempt"] == 2
        assert wait_for_job(direct, job, "failed")["attempt"] == 2
        assert attempts.count(2) > 1
        with pytest.raises(RefusedError, match="field 'attempt'"):
            direct.request("retry", job=job, attempt="3")
        check_keys(direct)


def check_keys(control):
    """The same key names the same job, whatever the line; without one each is new."""
    fields = {"line": LINE, "folder": os.getcwd()}

    def submit(**more):
        return control.request("submit", **(fields | more))["job"]["id"]

    first = submit(key="a")
    assert submit(key="a", line=["lcs", "gone.fa", "gone.fa"]) == first
    others = [submit(key="b"), submit(key="x" * 64), submit(), submit(), submit(key="")]
    assert len({first, *others}) == 6
    for key in ("x" * 65, 1, b"a"):
        with pytest.raises(RefusedError, match="'key' must be a text of at most 64 bytes"):
            submit(key=key)
    assert control.status()["job_keys"]


# ---- what a client cannot reach: other files, and the daemon itself --------------------------


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
        (tmp_path / "results" / "0.arrow").touch()
        (tmp_path / "link").symlink_to(tmp_path / "results")
        for name in ("results/0.arrow", "results/jobs.db", "link/0.arrow", "journal/x"):
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
