"""The jobs thread: stores jobs, runs each in its own process, and answers requests about them.

The folder of results has an Arrow IPC file for each job, ``ID.arrow``, and the job database. The
last lines of a process's standard error give the reason of a failure. Its progress comes on a pipe,
as lines with a number from 0 to 1.

The database is stored with the results, not in the journal: jobs have a different retention, and a
full disk of one does not stop the other. It has a row for each job, with a checksum over its id and
content.
"""

import contextlib
import fcntl
import os
import re
import secrets
import select
import signal
import subprocess
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

import apsw
import msgpack
import structlog

from streamer.daemon.child import Child
from streamer.daemon.core.jobs import DONE, Job, JobsCore, Owner, no_job
from streamer.daemon.core.rights import Rights
from streamer.daemon.daemon_status import DaemonStatus
from streamer.daemon.jobs import job_requests
from streamer.daemon.worker import Mailbox, Worker
from streamer.errors import StreamerError
from streamer.protocol.wire import (
    Buffer,
    Header,
    Reason,
    WireError,
    crc32c,
    integer,
    malformed,
    pack,
)  # fmt: skip
from trie.new_file import make_private

if TYPE_CHECKING:
    from streamer.daemon.config.tables import JobsTable

_OURS = re.compile(r"\.?[0-9a-f]{8}\.arrow(\..*\.part)?")
MAX_PIECE_BYTES = 1 << 16
"""The most bytes of a result in one reply."""


_APPLICATION = 0x6B6D736A
_TABLE = """
CREATE TABLE jobs (
    place INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE,
    content BLOB NOT NULL, checksum INTEGER NOT NULL
);
"""


class StoredJobs:
    """The database ``path``, open in one process at a time; raises StreamerError on failure.

    durability: as for the journal; ``fsync`` survives a power loss, ``os`` a kill. damaged: the
    ids, as far as readable, of damaged rows.
    """

    def __init__(
        self, path: str | os.PathLike[str], durability: Literal["none", "os", "fsync"]
    ) -> None:
        self._path = os.fspath(path)
        self.damaged: list[str] = []
        with self._errors():
            self._db = apsw.Connection(self._path)
            # no shared memory: the file may be on a network file system
            self._db.pragma("locking_mode", "exclusive")
            self._db.pragma("journal_mode", "wal")
            self._db.pragma("synchronous", "FULL" if durability == "fsync" else "OFF")
            application = self._db.pragma("application_id")
            if application not in (0, _APPLICATION):
                raise StreamerError(f"{self._path}: holds no jobs of this program")
            if application == 0:
                with self._db:
                    self._db.execute(_TABLE)
                    self._db.pragma("application_id", _APPLICATION)

    def rows(self) -> list[dict[str, Any]]:
        """Return the content of all rows, in the order of their first ``put``."""
        rows = []
        with self._errors():
            # read as bytes: a flipped bit may have changed a value's type, or made it invalid UTF-8
            for id_, content, checksum in self._db.execute(
                "SELECT CAST(id AS BLOB), CAST(content AS BLOB), CAST(checksum AS INTEGER)"
                " FROM jobs ORDER BY place"
            ):
                id_, content = id_ or b"", content or b""
                if _checksum(id_, content) == checksum:
                    rows.append(msgpack.unpackb(content))
                else:
                    self.damaged.append(id_.decode(errors="replace"))
        return rows

    def put(self, id_: str, fields: Mapping[str, Any]) -> None:
        """Store the current state of a job; it is durable once this returns."""
        content = msgpack.packb(dict(fields))
        with self._errors(), self._db:
            self._db.execute(
                "INSERT INTO jobs (id, content, checksum) VALUES (?1, ?2, ?3)"
                " ON CONFLICT (id) DO UPDATE SET content = ?2, checksum = ?3",
                (id_, content, _checksum(id_.encode(), content)),
            )

    def delete(self, id_: str) -> None:
        """Forget a job."""
        with self._errors(), self._db:
            self._db.execute("DELETE FROM jobs WHERE id = ?", (id_,))

    def close(self) -> None:
        """Close the database."""
        self._db.close()

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except (apsw.NotADBError, apsw.CorruptError, apsw.SQLError) as error:
            raise StreamerError(
                f"{self._path}: damaged: {error}; remove it to go on without these jobs"
            ) from error
        except apsw.Error as error:
            raise StreamerError(f"{self._path}: {error}") from error


def _checksum(id_: bytes, content: bytes) -> int:
    return crc32c([id_, content])


class JobResults:
    """The folder, used by one daemon at a time; StreamerError if it cannot be used."""

    def __init__(self, folder: str) -> None:
        self.folder = Path(folder)
        try:
            make_private(self.folder)
            self._lock = os.open(self.folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise StreamerError(
                f"jobs.results: {folder}: {(error.strerror or str(error)).lower()}"
            ) from None
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._lock)
            raise StreamerError(f"jobs.results: {folder} is in use by another daemon") from None

    @property
    def database(self) -> Path:
        """The database in which jobs are stored."""
        return self.folder / "jobs.db"

    def path(self, id_: str) -> Path:
        """The file with the result of a job."""
        return self.folder / f"{id_}.arrow"

    def size(self, id_: str) -> int | None:
        """The size of a result in bytes, None if there is none."""
        try:
            return self.path(id_).stat().st_size
        except OSError:
            return None

    def piece(self, id_: str, offset: int) -> bytes:
        """At most MAX_PIECE_BYTES of a result from an offset on; OSError if it cannot be read."""
        with open(self.path(id_), "rb") as file:
            return os.pread(file.fileno(), MAX_PIECE_BYTES, offset)

    def remove(self, id_: str) -> None:
        """Remove the result of a job, complete or not; what cannot be removed stays."""
        with contextlib.suppress(OSError):
            self.path(id_).unlink()
        with contextlib.suppress(OSError):
            for file in self.folder.glob(f".{id_}.arrow.*.part"):
                file.unlink()

    def clear(self, known: Collection[str]) -> None:
        """Remove results of unknown jobs and incomplete results."""
        for file in self.folder.iterdir():
            name = file.name
            if _OURS.fullmatch(name) and (name[0] == "." or name.split(".")[0] not in known):
                with contextlib.suppress(OSError):
                    file.unlink()

    def forget_database(self) -> None:
        """Remove the database: nothing shall survive this daemon."""
        for suffix in ("", "-wal", "-journal"):
            with contextlib.suppress(OSError):
                os.unlink(f"{self.database}{suffix}")

    def close(self) -> None:
        """Release the folder for other daemons."""
        os.close(self._lock)


_KEPT_BYTES = 4096
_REASON_CHARACTERS = 500
_AT_ONCE = 1 << 16


class JobProcess:
    """A process that runs ``line``, a command of this program with absolute paths.

    shown_from: a prefix to remove from the names of inputs in messages and rows. device_bytes: the
    GPU memory it may use, 0: no GPU. most_bytes: the most bytes of a file that it writes. nice: as
    in nice(2). It ends with the thread that started it. OSError if it cannot be started.
    """

    def __init__(
        self, line: Sequence[str], *, shown_from: str, device_bytes: int, most_bytes: int, nice: int
    ) -> None:
        self._progress, report = os.pipe()
        numbers = os.getpid(), report, device_bytes, most_bytes, nice
        try:
            self._child = Child(
                "streamer.cli.job_child",
                *map(str, numbers),
                shown_from,
                *line,
                # numba reads settings, which may name code, from the working directory: use root's
                cwd="/",
                stderr=subprocess.PIPE,
                pass_fds=(report,),
            )
        except BaseException:
            os.close(self._progress)
            raise
        finally:
            os.close(report)
        self._process = self._child.process
        assert self._process.stderr is not None
        self._errors = self._process.stderr.fileno()
        for pipe in (self._errors, self._progress):
            os.set_blocking(pipe, False)
        self._said = self._numbers = b""
        self.share = 0.0

    def descriptors(self) -> tuple[int, ...]:
        """Descriptors that become readable when ``poll`` has something to do."""
        return self._child.ended, self._progress, self._errors

    def poll(self) -> bool:
        """Read its output and progress (``share``); returns whether it has ended."""
        ended = self._process.poll() is not None
        self._said = (self._said + _all(self._errors))[-_KEPT_BYTES:]
        *whole, self._numbers = (self._numbers + _all(self._progress)).split(b"\n")
        if whole:
            with contextlib.suppress(ValueError):
                self.share = float(whole[-1])
        return ended

    def interrupt(self) -> None:
        """Ask it to end."""
        self._process.send_signal(signal.SIGINT)

    def kill(self) -> None:
        """End it."""
        self._process.kill()

    def reason(self) -> str:
        """Why it failed, as one line, empty if it did not; call this once it has ended."""
        code = self._process.returncode
        if code == 0:
            return ""
        if code < 0:
            named = -code in set(signal.Signals)
            name = signal.Signals(-code).name if named else f"signal {-code}"
            return f"its process was ended by {name}" + (
                ": perhaps there was no memory left" if -code == signal.SIGKILL else ""
            )
        lines = self._said.decode(errors="replace").splitlines()
        last = next((line for line in reversed(lines) if line.strip()), f"exit code {code}")
        return last.removeprefix("streamer: ").removeprefix("error: ")[:_REASON_CHARACTERS]

    def close(self) -> None:
        """Close the pipes; a process that has not ended is killed."""
        self._child.end(0.0)
        os.close(self._progress)


def _all(pipe: int) -> bytes:
    """The content of a pipe, up to a short limit."""
    try:
        return os.read(pipe, _AT_ONCE)
    except BlockingIOError:
        return b""


JOB_COMMANDS = ("submit", "jobs", "job", "cancel", "retry", "result")
_PAGE_BYTES = 48_000
_MAX_REQUESTS = 256
_LOOK_SECONDS = 1.0

log = structlog.get_logger("jobs")


class JobReply(Protocol):
    """Takes the further fields and the frames of a reply, or an error; called from any thread."""

    def __call__(self, outcome: Header | WireError, frames: Sequence[Buffer] = ()) -> None: ...


class _Asked(NamedTuple):
    command: str
    request: Header
    rights: Rights
    reply: JobReply


class JobsWorker(Worker):
    """Runs the jobs of ``[jobs]``; StreamerError if its folder cannot be used.

    parse: checks command lines.
    """

    def __init__(
        self, status: DaemonStatus, notify: Callable[[], None], parse: job_requests.Parse
    ) -> None:
        super().__init__("jobs", notify)
        self.inbox: Mailbox[_Asked] = Mailbox()
        self._status = status
        self._parse = parse
        self._table: JobsTable = status.config.jobs
        self._results = JobResults(self._table.results)
        self._closing = False
        self._processes: dict[str, JobProcess] = {}
        # jobs whose state could not be stored, and those that could not be deleted
        self._unstored: dict[str, Job | None] = {}
        self._store_fails = False
        self._store: StoredJobs | None = None
        try:
            stored = self._opened()
        except BaseException:
            self._results.close()
            raise
        self._core = JobsCore(
            self._table.at_once, self._table.kept, self._table.keep_bytes, stored, time.time()
        )
        self._results.clear({job.id for job in stored})
        status.jobs = self._core.counts()

    # ---- from other threads ------------------------------------------------------------------

    def ask(self, command: str, request: Header, rights: Rights, reply: JobReply) -> None:
        """Queue one of JOB_COMMANDS, which replies later; WireError if too many wait."""
        if self.inbox.length >= _MAX_REQUESTS:
            raise WireError(Reason.BUSY, "too many requests about jobs wait: try again later")
        self.inbox.put(_Asked(command, request, rights, reply))

    def end(self) -> None:
        """Take no more jobs and end those that run."""
        self._closing = True
        self.inbox.wake()

    def stop(self) -> None:
        """Do ``end``; the thread ends afterwards."""
        super().stop()
        self.end()

    # ------------------------------------------------------------------------------------------

    def work(self) -> None:
        """Run jobs until asked to stop and the last one has ended."""
        self.ready.set()
        closed = False
        self._core.begin()
        try:
            while True:
                self._apply()
                if self.stopping.is_set() and closed and not self._processes:
                    break
                self._wait()
                if self._closing and not closed:
                    closed = True
                    self._core.close(time.monotonic())
                for asked in self.inbox.take():
                    self._obey(asked)
                self._poll_processes()
        finally:
            for process in self._processes.values():
                process.close()
            if self._store is not None:
                self._store.close()
            else:
                self._results.clear(())
            self._results.close()

    def _opened(self) -> list[Job]:
        """Open the database and return its jobs; without a journal nothing survives the daemon."""
        durability = self._status.config.journal.durability
        if durability == "none":
            self._results.forget_database()
            return []
        self._store = StoredJobs(self._results.database, durability)
        jobs = [_job(fields) for fields in self._store.rows()]
        for id_ in self._store.damaged:
            log.warning("damaged, and given up", job=id_)
            self._store.delete(id_)
        return jobs

    def _wait(self) -> None:
        kill_at = self._core.tick(time.monotonic())
        seconds = _LOOK_SECONDS
        if kill_at is not None:
            seconds = min(seconds, max(0.0, kill_at - time.monotonic()))
        waiting = select.poll()
        waiting.register(self.inbox.fileno(), select.POLLIN)
        for process in self._processes.values():
            for descriptor in process.descriptors():
                waiting.register(descriptor, select.POLLIN)
        waiting.poll(int(seconds * 1000) + 1)

    def _poll_processes(self) -> None:
        """Read the output of running jobs, and note which have ended."""
        for id_, process in list(self._processes.items()):
            ended = process.poll()
            self._core.progress(id_, process.share)
            if not ended:
                continue
            reason, size = process.reason(), self._results.size(id_)
            if not reason and size is None:
                reason = "there is no result"
            process.close()
            del self._processes[id_]
            self._core.ended(id_, reason, size or 0, time.time())
            if reason:
                # a killed job leaves what it has written
                self._results.remove(id_)
        self._core.tick(time.monotonic())

    def _apply(self) -> None:
        steps = self._core.steps()
        while steps.start:
            for job in steps.start:
                self._start(job)
            more = self._core.steps()
            steps.store += more.store
            steps.delete += more.delete
            steps.start = more.start
        self._unstored |= {job.id: job for job in steps.store}
        self._unstored |= dict.fromkeys(steps.delete)
        for id_ in steps.delete:
            self._results.remove(id_)
        self._put()
        for job in {job.id: job for job in steps.store}.values():
            log.info(job.state, job=job.id, command=job.line[0], **_why(job))
        for id_ in steps.interrupt:
            if id_ in self._processes:
                self._processes[id_].interrupt()
        for id_ in steps.kill:
            if id_ in self._processes:
                self._processes[id_].kill()
        self._status.jobs = self._core.counts()

    def _put(self) -> None:
        """Store what has changed; what finds no room is stored with the next change."""
        if self._store is None:
            self._unstored.clear()
        for id_, job in list(self._unstored.items()):
            assert self._store is not None
            try:
                if job is None:
                    self._store.delete(id_)
                else:
                    self._store.put(id_, asdict(job))
            except StreamerError as error:
                if not self._store_fails:
                    self._store_fails = True
                    log.error("states of jobs cannot be stored", job=id_, why=str(error))
                return
            del self._unstored[id_]
            self._store_fails = False

    def _start(self, job: Job) -> None:
        self._core.begun(job.id, time.time())
        try:
            parsed = self._checked(job.line, job.folder)
            ours = ["--quiet", "--format", "arrow", "--output", str(self._results.path(job.id))]
            self._processes[job.id] = JobProcess(
                [job.line[0], *ours, *parsed.arguments],
                shown_from=job_requests.start_of(job.folder),
                device_bytes=self._table.device_bytes // self._table.at_once,
                most_bytes=self._table.keep_bytes,
                nice=self._table.nice,
            )
        except StreamerError as error:
            self._core.ended(job.id, str(error), 0, time.time())
        except OSError as error:
            reason = f"its process cannot be started: {error.strerror or error}"
            self._core.ended(job.id, reason, 0, time.time())

    def _checked(self, line: Sequence[str], folder: str) -> job_requests.ParsedLine:
        """The parsed line of a valid job; StreamerError if it is not one."""
        parsed = self._parse(line, folder)
        config = self._status.config
        own = [self._table.results, config.journal.directory, config.security.keys]
        own.append(config.web.token_file)
        job_requests.check_inputs(
            parsed.inputs, folder, self._table.directories, [file for file in own if file]
        )
        return parsed

    # ---- requests ----------------------------------------------------------------------------

    def _obey(self, asked: _Asked) -> None:
        frames: Sequence[Buffer] = ()
        outcome: Header | WireError
        try:
            match asked.command:
                case "submit":
                    outcome = self._submit(asked.request, asked.rights)
                case "jobs":
                    outcome = self._page(asked.request, asked.rights)
                case "result":
                    outcome, frames = self._result(asked.request, asked.rights)
                case _:
                    job = self._job(asked.request, asked.rights)
                    if asked.command == "cancel":
                        self._core.cancel(job, time.time(), time.monotonic())
                    elif asked.command == "retry":
                        attempt = job_requests.attempt_of(asked.request)
                        self._core.retry(job, job_requests.limit_of(asked.rights, job), attempt)
                    # it is stored before the reply
                    self._apply()
                    outcome = {"job": job.fields()}
        except WireError as error:
            outcome = error
        asked.reply(outcome, frames)

    def _submit(self, request: Header, rights: Rights) -> Header:
        line, folder, key = (
            job_requests.line_of(request),
            job_requests.folder_of(request),
            job_requests.key_of(request),
        )
        owner = Owner(rights.key, rights.name)
        if (taken := self._core.keyed(owner, key)) is not None:
            return {"job": taken.fields()}
        try:
            parsed = self._checked(line, folder)
        except WireError:
            raise
        except StreamerError as error:
            raise malformed(str(error)) from None
        if parsed.device == "cuda" and not self._table.device_bytes:
            raise WireError(
                Reason.DENIED, "--device cuda: jobs run on the CPU here (jobs.device_bytes is 0)"
            )
        if all(os.path.isabs(path) for path in parsed.inputs):
            folder = ""
        job = Job(self._new_id(), line, folder, owner, round(time.time(), 3), key=key)
        self._core.check_room(job.owner, rights.limits.jobs)
        if self._store is not None:
            try:
                self._store.put(job.id, asdict(job))
            except StreamerError as error:
                raise WireError(Reason.FULL, f"the job cannot be stored: {error}") from None
        self._core.submit(job)
        self._apply()
        return {"job": job.fields()}

    def _new_id(self) -> str:
        known = {job.id for job in self._core.jobs}
        while (made := secrets.token_hex(4)) in known:
            pass
        return made

    def _page(self, request: Header, rights: Rights) -> Header:
        first = integer(request, "first") if "first" in request else 0
        jobs = [job for job in self._core.jobs if job_requests.sees(rights, job)]
        page: list[Header] = []
        size = 0
        for job in jobs[first:]:
            size += len(pack(job.fields()))
            if page and size > _PAGE_BYTES:
                break
            page.append(job.fields())
        following = first + len(page)
        return {"jobs": page, "next": following if following < len(jobs) else None, "of": len(jobs)}

    def _result(self, request: Header, rights: Rights) -> tuple[Header, Sequence[Buffer]]:
        job = self._job(request, rights)
        if job.state != DONE:
            why = f": {job.reason}" if job.reason else ""
            raise WireError(Reason.CONFLICT, f"job {job.id} has no result, it is {job.state}{why}")
        fields = {"path": str(self._results.path(job.id)), "bytes": job.size}
        if "offset" not in request:
            return fields, ()
        try:
            return fields, [self._results.piece(job.id, integer(request, "offset"))]
        except OSError as error:
            raise WireError(
                Reason.DAMAGED,
                f"the result of job {job.id} cannot be read: {error.strerror or error}",
            ) from None

    def _job(self, request: Header, rights: Rights) -> Job:
        job = self._core.job(request.get("job"))
        if not job_requests.sees(rights, job):
            raise no_job(job.id)
        return job


def _why(job: Job) -> dict[str, Any]:
    return {"why": job.reason} if job.reason else {}


def _job(fields: dict[str, Any]) -> Job:
    fields = {name: fields[name] for name in Job.__dataclass_fields__ if name in fields}
    made = Job(**fields)
    made.line, made.owner = tuple(made.line), Owner(*made.owner)
    return made
