"""A daemon under load for hours, with clients that are killed, stall or send nonsense.

    python -m tests.faults.soaking HOURS [--seed N] [-o FOLDER] ...

The daemon is the real program with a syncing journal, live answers and retention. Every batch,
every message of the feed and everything that sync replays is compared; memory, descriptors, disk
use and latency are sampled, and a line is fitted to each series. Exit 1: something was lost,
duplicated or differs, or a series grows by more than its bound (``soak_slopes.BOUNDS``).
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import zmq

from tests.daemon_kit import write_fasta
from tests.faults.nursery import ROOT
from tests.faults.plain_client import PlainControl, PlainPuller
from tests.faults.soak_clients import GENOME_BASES, TOPICS, genome
from tests.faults.soak_truth import (
    SHORTEST,
    WARM_UP,
    LatencyHealer,
    Row,
    SoakJobs,
    Truth,
    draw,
    is_long_enough,
    sample,
    slopes_of,
    table,
    write_inputs,
    write_tsv,
)
from tests.waiting import DEADLINE

PRODUCERS = 2
KEPT_BYTES = 4 << 30  # at the default size; divided by --shrink
OTHERS = ("subscribe", "read", "stand still", "disturb")
# seconds of silence allowed for sync, which sends something every second
_SILENT = 60.0
# seconds between two requests to control, and for its answers
_ASK_SECONDS, _FOLLOW_SECONDS = 5.0, 1.0


class Plan(NamedTuple):
    """every, kill_every, reload_every, job_every: seconds. rate: batches a second in total."""

    hours: float
    seed: int = 1
    rate: float = 10.0
    every: float = 2.0
    kill_every: float = 10.0
    reload_every: float = 60.0
    job_every: float = 30.0
    shrink: int = 64


class Client:
    """A process that may be killed. epoch: the number of its starts. durable: as last reported."""

    def __init__(self, role: str, folder: Path, plan: Plan, number: int) -> None:
        self.role, self.name, self.epoch = role, f"p{number}", 0
        self._words = [role, folder]
        self._seed = f"{plan.seed}.{number}"
        self._rate = plan.rate / PRODUCERS
        self.start()

    def start(self) -> None:
        self.epoch += 1
        self.durable, self._said = 0, b""
        words = [*self._words, f"{self._seed}.{self.epoch}"]
        if self.role == "produce":
            words += [self.name, self.epoch, self._rate]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.faults.soak_clients", *map(str, words)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=ROOT,
        )
        assert self.process.stdout is not None
        os.set_blocking(self.process.stdout.fileno(), False)

    def listen(self) -> None:
        """Read its output so far, even if it was killed since."""
        assert self.process.stdout is not None
        *whole, self._said = (self._said + (self.process.stdout.read() or b"")).split(b"\n")
        if whole:
            self.durable = int(whole[-1])

    def finish(self) -> None:
        """Have it end by itself."""
        assert self.process.stdin is not None
        self.process.stdin.close()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        self.listen()
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            pipe.close()


class Soak:
    """One soak. rows: the samples; killed: clients by role; reloads: answered ones."""

    def __init__(self, plan: Plan, folder: Path) -> None:
        self.plan, self.folder = plan, folder
        self.rows: list[Row] = []
        self.killed = Counter[str]()
        self.reloads = 0
        self.truth = Truth()
        self._rng = random.Random(plan.seed)
        self._genome = genome().decode()
        self._asked: dict[int, tuple[str, float]] = {}
        self._latencies: list[float] = []
        self._change()
        write_inputs(self.folder / "data", self._rng)
        self.jobs = SoakJobs(self.folder / "data", self._rng)
        self._daemon = self._start()
        self._context = zmq.Context()
        self._healer = LatencyHealer(
            self._context, self._at("feed"), self._at("sync"), TOPICS, self._rng
        )
        self._control = PlainControl(self._context, self._at("control"))
        self._puller = PlainPuller(self._context, self._at("sync"), TOPICS)
        self._clients: list[Client] = []

    @property
    def journal(self) -> Path:
        return self.folder / "journal"

    def _at(self, name: str) -> str:
        return f"ipc://{self.folder}/{name}"

    def _start(self) -> subprocess.Popen[bytes]:
        plan = self.plan
        settings = {
            "dictionary.k": 21,
            "dictionary.sources": [str(self.folder / "ref.fa")],
            "matching.device": "cpu",
            "matching.threads": 1,
            "answers.targets": "true",
            "answers.coverage": "true",
            "feed.beat_seconds": 0.25,
            "feed.buffer_bytes": 16 << 20,
            "journal.durability": "fsync",
            "journal.directory": self.journal,
            "journal.keep_bytes": KEPT_BYTES // plan.shrink,
            "jobs.directories": [str(self.folder / "data")],
            "jobs.results": str(self.folder / "results"),
            "jobs.kept": 10,
            "log.level": "warning",
        }
        settings |= {f"{n}.endpoint": self._at(n) for n in ("ingest", "feed", "control", "sync")}
        options = [w for key, value in settings.items() for w in ("--set", f"{key}={value}")]
        program = ["-m", "tests.faults.soak_daemon", str(plan.shrink), "run"]
        with (self.folder / "log").open("wb") as log:
            return subprocess.Popen(
                [sys.executable, *program, *options], cwd=ROOT, stdout=log, stderr=log
            )

    def _change(self) -> None:
        """Replace the sources atomically, by two of four overlapping quarters of the genome."""
        written, size = self.folder / "new.fa", GENOME_BASES // 4
        starts = self._rng.sample(range(0, GENOME_BASES - size, size // 4), 2)
        records = [(f"t{start}", self._genome[start : start + size]) for start in starts]
        write_fasta(written, records)
        os.replace(written, self.folder / "ref.fa")

    # ---- the time of the soak -------------------------------------------------------------------

    def run(self) -> tuple[int, int]:
        """Soak; returns how many batches the journal has, and how many expired.

        AssertionError says what does not hold.
        """
        self._until(lambda: self._puller.at or self._puller.head or self._puller.stream, "sync")
        roles = [*["produce"] * PRODUCERS, *OTHERS]
        self._clients = [Client(role, self.folder, self.plan, n) for n, role in enumerate(roles)]
        self._until(lambda: self.truth.batches, "batches")
        self._soak()
        for client in self._producers:
            client.finish()
        self._until(lambda: all(c.process.poll() == 0 for c in self._producers), "all is durable")
        self._until(self._follow_job, "the end of a job")
        self._until(lambda: self.truth.is_complete and not self._healer.missing, "all is replayed")
        for client in self._clients:
            client.kill()
        self._clients = []
        self._ask("status")
        self._until(lambda: not self._asked, "a last status")
        self._until(lambda: self._is_level, "feed and sync agree")
        self._daemon.terminate()
        code = self._daemon.wait(DEADLINE)
        assert code == 0, f"the daemon ended with {code}"
        return self.truth.check_journal(self.journal)

    @property
    def _producers(self) -> list[Client]:
        return [client for client in self._clients if client.role == "produce"]

    @property
    def _is_level(self) -> bool:
        """Whether nothing waits to be compared."""
        level = self._puller.at == self._puller.head and not self._healer.missing
        return level and not self._healer.messages

    def _soak(self) -> None:
        plan, begun = self.plan, time.monotonic()
        due = dict.fromkeys(("sample", "kill", "reload", "ask", "job", "follow"), begun)
        due["kill"] += plan.kill_every
        self._latencies.clear()
        while (now := time.monotonic()) < begun + 3600 * plan.hours:
            self._step()
            if now >= due["sample"]:
                due["sample"] += plan.every
                self._sample(now - begun)
            if now >= due["kill"]:
                due["kill"] = now + self._rng.expovariate(1 / plan.kill_every)
                self._kill(self._rng.choice(self._clients))
            if now >= due["reload"]:
                due["reload"] = now + plan.reload_every
                self._change()
                self._ask("reload")
            if now >= due["ask"]:
                due["ask"] = now + _ASK_SECONDS
                for command in ("status", "targets"):
                    self._ask(command)
            if now >= due["job"]:
                due["job"] = now + plan.job_every
                if not self.jobs.active:
                    self._ask(*self.jobs.submit())
            if now >= due["follow"]:
                due["follow"] = now + _FOLLOW_SECONDS
                self._follow_job()

    def _follow_job(self) -> bool:
        """Ask about the active job; returns whether there is none."""
        if (request := self.jobs.follow()) is not None:
            self._ask(*request)
        return not self.jobs.active

    def _until(self, holds: Any, what: str) -> None:
        deadline = time.monotonic() + DEADLINE
        while not holds():
            self._step()
            assert time.monotonic() < deadline, f"waited in vain: {what}"

    def _step(self) -> None:
        """Process what has come from all clients."""
        waiting = zmq.Poller()
        for socket in (self._healer.socket, self._control.socket, self._puller.socket):
            waiting.register(socket, zmq.POLLIN)
        waiting.poll(20)
        code = self._daemon.poll()
        assert code is None, f"the daemon ended by itself, with {code}"
        self._healer.step()
        self._healer.heal()
        for _ in range(200):
            if not self._puller.step():
                break
        assert self._puller.heard > time.monotonic() - _SILENT, "sync is silent"
        self.truth.compare(self._puller, self._healer)
        self._latencies += self._healer.latencies
        self._healer.latencies.clear()
        for client in self._clients:
            self._listen(client)
        self._control.step()
        for number, reply in self._control.replies.items():
            command, _ = self._asked.pop(number)
            if command in ("submit", "job", "cancel"):
                self.jobs.hear(command, reply)
                continue
            # the sender of odd messages asks for reloads, too
            busy = command == "reload" and reply.get("reason") == "busy"
            assert reply["ok"] or busy, f"{command} was refused: {reply}"
            self.reloads += command == "reload" and not busy
        self._control.replies.clear()
        late = [c for c, asked in self._asked.values() if time.monotonic() > asked + DEADLINE]
        assert not late, f"control has not answered: {late}"

    def _ask(self, command: str, fields: Mapping[str, Any] | None = None) -> None:
        self._asked[self._control.ask(command, **(fields or {}))] = command, time.monotonic()

    def _listen(self, client: Client) -> None:
        code = client.process.poll()
        assert code in (None, 0), f"a client ({client.role}) ended by itself, with {code}"
        client.listen()
        if client.role == "produce":
            self.truth.acked[client.name, client.epoch] = client.durable

    def _kill(self, client: Client) -> None:
        self._listen(client)
        client.kill()
        if client.role == "produce":
            self.truth.acked[client.name, client.epoch] = client.durable
        self.killed[client.role] += 1
        client.start()

    def _sample(self, seconds: float) -> None:
        row = sample(self._daemon.pid, self.journal, self._latencies)
        row |= {"seconds": seconds, "clients_killed": self.killed.total(), "reloads": self.reloads}
        self.rows.append(row)
        self._latencies.clear()

    def close(self) -> None:
        for client in self._clients:
            client.kill()
        self._daemon.kill()
        self._daemon.wait()
        for one in (self._healer, self._control, self._puller):
            one.close()
        self._context.term()


def soak(plan: Plan, out: Path | None = None) -> int:
    """Soak and report; returns the exit code. out: a folder for samples and picture."""
    folder = Path(tempfile.mkdtemp(prefix="soak-"))
    one = Soak(plan, folder)
    try:
        stored, expired = one.run()
    except AssertionError as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        said = str(error) or f"{place.line} ({place.filename}, line {place.lineno})"
        print(f"after {len(one.rows)} samples: {said}\njournal and log are in {folder}")
        return 1
    finally:
        one.close()
        if out is not None:
            out.mkdir(parents=True, exist_ok=True)
            write_tsv(out / "soak.tsv", one.rows)
            if one.rows:
                draw(out / "soak.svg", one.rows, WARM_UP * one.rows[-1]["seconds"])
    log = (folder / "log").read_text()
    shutil.rmtree(folder)
    judged = is_long_enough(one.rows)
    shown, growing = table(slopes_of(one.rows), judged=judged)
    print(shown)
    acked = sum(one.truth.acked.values())
    killed, jobs = (
        ", ".join(f"{count} {name}" for name, count in sorted(counts.items())) or "0"
        for counts in (one.killed, one.jobs.ended)
    )
    print(
        f"\n{plan.hours:g} hours, seed {plan.seed}, {one.reloads} reloads; killed: {killed}; "
        f"jobs: {jobs}\n"
        f"{acked} batches acknowledged; {stored} in the journal, {expired} replayed and expired; "
        f"{one.truth.compared} messages equal on feed and sync: lost 0, twice 0, divergent 0"
    )
    if not judged:
        least = SHORTEST / (1 - WARM_UP) / 3600
        print(f"slopes are judged from {least:.2g} hours on")
    if log:
        print(f"the daemon's log has {log.count(chr(10))} lines, the last: {log.splitlines()[-1]}")
    if growing:
        print(f"grows: {', '.join(growing)}")
    return int(bool(growing))


def _main() -> None:
    plan = Plan(0)
    parser = argparse.ArgumentParser(description="Soak a daemon; is anything lost, does it grow?")
    parser.add_argument("hours", type=float)
    parser.add_argument("--seed", type=int, default=plan.seed)
    parser.add_argument("--rate", type=float, default=plan.rate, help="batches a second")
    parser.add_argument("--every", type=float, default=plan.every, help="seconds between samples")
    parser.add_argument("--kill-every", type=float, default=plan.kill_every, help="seconds")
    parser.add_argument("--reload-every", type=float, default=plan.reload_every, help="seconds")
    parser.add_argument("--job-every", type=float, default=plan.job_every, help="seconds")
    parser.add_argument("--shrink", type=int, default=plan.shrink, help="factor for file sizes")
    parser.add_argument("-o", type=Path, metavar="FOLDER", help="for soak.tsv and soak.svg")
    given = vars(parser.parse_args())
    out = given.pop("o")
    for name in ("hours", "rate", "every", "kill_every", "reload_every", "job_every", "shrink"):
        if not 0 < given[name] < float("inf"):
            parser.error(f"{name} must be above 0")
    sys.exit(soak(Plan(**given), out))


if __name__ == "__main__":
    _main()
