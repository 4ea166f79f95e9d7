"""The states of batch jobs. Decisions only: what to start, end, store and delete.

 waiting ──▶ running ──▶ done
    │           ├──────▶ failed        its command ended with an error
       │           ├──────▶ cancelled     on request: SIGINT, then SIGKILL after five seconds
       │           └──────▶ interrupted   the daemon ended, or was killed (detected by the next)
    └──▶ cancelled

``retry`` takes a failed, cancelled or interrupted job back to waiting. Times are in seconds since
1970, deadlines in monotonic seconds.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from streamer.protocol.wire import Reason, WireError, malformed, shown

WAITING, RUNNING, DONE = "waiting", "running", "done"
FAILED, CANCELLED, INTERRUPTED = "failed", "cancelled", "interrupted"
JOB_STATES = (WAITING, RUNNING, DONE, FAILED, CANCELLED, INTERRUPTED)
AGAIN = (FAILED, CANCELLED, INTERRUPTED)
"""States from which a job can be run again."""

MAX_ACTIVE = 1000
"""How many jobs may wait or run."""

KILL_SECONDS = 5.0
END_SECONDS = 3.0
"""Seconds from SIGINT to SIGKILL: for a cancelled job, and when the daemon ends."""

KILLED = "the daemon was killed while it ran"
ENDED = "the daemon ended while it ran"


class Owner(NamedTuple):
    """The owner of a job: a public key and its name, both empty if the daemon needs no keys."""

    key: str = ""
    name: str = ""


@dataclass(slots=True)
class Job:
    """A job. line: the command and its arguments. folder: where relative paths start, or empty.

    reason: one line that says why it ended other than done. progress: from 0 to 1. size: bytes of
    its result. attempt: from 1, one more with every retry. key: by which its owner can ask for it
    again, or empty.
    """

    id: str
    line: tuple[str, ...]
    folder: str
    owner: Owner
    submitted: float
    state: str = WAITING
    reason: str = ""
    progress: float = 0.0
    started: float | None = None
    ended: float | None = None
    size: int = 0
    attempt: int = 1
    key: str = ""

    def fields(self) -> dict[str, Any]:
        """The fields that clients see."""
        return {
            "id": self.id,
            "state": self.state,
            "reason": self.reason,
            "progress": round(self.progress, 4),
            "command": self.line[0],
            "arguments": list(self.line[1:]),
            "folder": self.folder,
            "owner": self.owner.name,
            "submitted": self.submitted,
            "started": self.started,
            "ended": self.ended,
            "bytes": self.size,
            "attempt": self.attempt,
        }


@dataclass(slots=True)
class Steps:
    """The next steps, in this order.

    store: jobs whose state has changed. delete: jobs to forget, with their results. start: jobs to
    start. interrupt, kill: ids of running jobs.
    """

    store: list[Job] = field(default_factory=list)
    delete: list[str] = field(default_factory=list)
    start: list[Job] = field(default_factory=list)
    interrupt: list[str] = field(default_factory=list)
    kill: list[str] = field(default_factory=list)


@dataclass(slots=True)
class _Ending:
    """A running job that is to end: its next state, the reason, when to kill it (None: killed)."""

    state: str
    reason: str
    kill_at: float | None


class JobsCore:
    """All jobs of a daemon.

    at_once: how many may run. kept, keep_bytes: how many of the latest ended jobs are kept, and how
    many bytes of their results; the last result always is. stored: jobs of earlier daemons, in the
    order of their submission; those that ran then are interrupted.
    """

    def __init__(
        self, at_once: int, kept: int, keep_bytes: int, stored: Iterable[Job] = (), now: float = 0.0
    ) -> None:
        self._at_once = at_once
        self._kept = kept
        self._keep_bytes = keep_bytes
        self._steps = Steps()
        self._jobs = {job.id: job for job in stored}
        past = [job for job in self._jobs.values() if job.state not in (WAITING, RUNNING)]
        # in the order of their ends; from now on, setting the clock back does not change this order
        self._past = {job.id: job for job in sorted(past, key=lambda job: job.ended or 0.0)}
        self._ending: dict[str, _Ending] = {}
        self._closed = False
        for job in self._jobs.values():
            if job.state == RUNNING:
                self._end(job, INTERRUPTED, KILLED, now)
        self._forget()

    # ---- requests ----------------------------------------------------------------------------

    def submit(self, job: Job, limit: int = 0) -> None:
        """Take a job; WireError if it cannot be taken.

        limit: how many jobs of its owner may wait or run, 0 for no limit.
        """
        self.check_room(job.owner, limit)
        self._jobs[job.id] = job
        self._steps.store.append(job)
        self._start()

    def retry(self, job: Job, limit: int = 0, attempt: int | None = None) -> None:
        """Run again a job that was not done; WireError if that is impossible.

        attempt: the number of this run; nothing changes if the job has it already, or had it.
        """
        if attempt is not None and attempt <= job.attempt:
            return  # the reply may have been lost
        if job.state not in AGAIN:
            raise WireError(
                Reason.CONFLICT,
                f"job {job.id} is {job.state}: only one that is {_or(AGAIN)} runs again",
            )
        self.check_room(job.owner, limit)
        job.state, job.reason, job.progress = WAITING, "", 0.0
        job.started = job.ended = None
        job.attempt += 1
        del self._past[job.id]
        # at the end of the queue
        self._jobs[job.id] = self._jobs.pop(job.id)
        self._steps.store.append(job)
        self._start()

    def cancel(self, job: Job, now: float, clock: float) -> None:
        """Cancel a job that waits or runs; WireError if it has ended otherwise.

        clock: monotonic seconds.
        """
        if job.state == CANCELLED:
            return  # the reply may have been lost
        if job.state == WAITING:
            self._end(job, CANCELLED, "cancelled before it began", now)
            self._forget()
        elif job.state != RUNNING:
            raise WireError(Reason.CONFLICT, f"job {job.id} is {job.state} already")
        elif job.id not in self._ending:
            self._interrupt(job, _Ending(CANCELLED, "cancelled", clock + KILL_SECONDS))

    def close(self, clock: float) -> None:
        """Take no more jobs and end those that run, because the daemon ends."""
        self._closed = True
        for job in self._jobs.values():
            if job.state == RUNNING:
                known = self._ending.get(job.id)
                ending = _Ending(INTERRUPTED, ENDED, clock + END_SECONDS)
                if known is None:
                    self._interrupt(job, ending)
                elif known.kill_at is not None:
                    known.kill_at = min(known.kill_at, clock + END_SECONDS)

    def job(self, id_: object) -> Job:
        """A job by its id; WireError if there is none."""
        job = self._jobs.get(id_) if isinstance(id_, str) else None
        if job is None:
            raise no_job(id_)
        return job

    def keyed(self, owner: Owner, key: str) -> Job | None:
        """The job that its owner submitted with this key, if it is known."""
        known = (job for job in self._jobs.values() if key and job.key == key)
        return next((job for job in known if job.owner.key == owner.key), None)

    # ---- events ------------------------------------------------------------------------------

    def begun(self, id_: str, now: float) -> None:
        """Note that a job to start is now running."""
        job = self._jobs[id_]
        job.started = now
        self._steps.store.append(job)

    def begin(self) -> None:
        """Start the jobs that waited when the previous daemon ended."""
        self._start()

    def progress(self, id_: str, share: float) -> None:
        """Note the progress of a running job, from 0 to 1."""
        job = self._jobs[id_]
        job.progress = max(job.progress, min(1.0, share))

    def ended(self, id_: str, reason: str, size: int, now: float) -> None:
        """A running job has ended. reason: why it failed; empty: its result has ``size`` bytes."""
        job = self._jobs[id_]
        ending = self._ending.pop(id_, None)
        if not reason:
            job.progress, job.size = 1.0, size
            self._end(job, DONE, "", now)
        elif ending is not None:
            killed = ", killed: it did not end by itself" if ending.kill_at is None else ""
            self._end(job, ending.state, ending.reason + killed, now)
        else:
            self._end(job, FAILED, reason, now)
        self._forget()
        self._start()

    def tick(self, clock: float) -> float | None:
        """Kill what does not end in time; returns when to call this again, in monotonic seconds."""
        for id_, ending in self._ending.items():
            if ending.kill_at is not None and ending.kill_at <= clock:
                ending.kill_at = None
                self._steps.kill.append(id_)
        times = [ending.kill_at for ending in self._ending.values() if ending.kill_at is not None]
        return min(times, default=None)

    def steps(self) -> Steps:
        """The steps since the last call."""
        taken, self._steps = self._steps, Steps()
        return taken

    # ---- queries -----------------------------------------------------------------------------

    @property
    def jobs(self) -> list[Job]:
        """All jobs, in the order of submission; a retried job moves to the end."""
        return list(self._jobs.values())

    @property
    def running(self) -> int:
        """How many jobs are running."""
        return sum(job.state == RUNNING for job in self._jobs.values())

    def counts(self) -> dict[str, int]:
        """How many jobs there are in each state."""
        counts = dict.fromkeys(JOB_STATES, 0)
        for job in self._jobs.values():
            counts[job.state] += 1
        return counts

    # ------------------------------------------------------------------------------------------

    def check_room(self, owner: Owner, limit: int) -> None:
        """WireError if this owner may not add a job now."""
        if self._closed:
            raise WireError(Reason.DRAINING, "the daemon takes no more jobs")
        active = [job for job in self._jobs.values() if job.state in (WAITING, RUNNING)]
        own = sum(job.owner.key == owner.key for job in active)
        if limit and own >= limit:
            raise WireError(
                Reason.DENIED, f"the key '{owner.name}' has {own} jobs that wait or run, its limit"
            )
        if len(active) >= MAX_ACTIVE:
            raise WireError(Reason.BUSY, f"{len(active)} jobs wait or run: try again later")

    def _start(self) -> None:
        if self._closed:
            return
        free = self._at_once - self.running
        for job in [job for job in self._jobs.values() if job.state == WAITING][: max(0, free)]:
            job.state = RUNNING
            self._steps.start.append(job)

    def _interrupt(self, job: Job, ending: _Ending) -> None:
        self._ending[job.id] = ending
        self._steps.interrupt.append(job.id)

    def _end(self, job: Job, state: str, reason: str, now: float) -> None:
        # the reason may hold text from files and clients, and is shown on other users' terminals
        line = "".join(c if c.isprintable() else "?" for c in " ".join(reason.split()))
        job.state, job.reason, job.ended = state, line, now
        self._past[job.id] = job
        self._steps.store.append(job)

    def _forget(self) -> None:
        size = sum(job.size for job in self._past.values())
        for job in list(self._past.values())[:-1]:
            if len(self._past) <= self._kept and size <= self._keep_bytes:
                break
            size -= job.size
            del self._past[job.id], self._jobs[job.id]
            self._steps.delete.append(job.id)


def no_job(id_: object) -> WireError:
    """The error for an id that no job has."""
    return malformed(f"there is no job {shown(id_)}")


def _or(words: Iterable[str]) -> str:
    *first, last = words
    return f"{', '.join(first)} or {last}"
