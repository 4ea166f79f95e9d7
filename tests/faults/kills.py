"""Kills the real daemon at random moments and at named points, and checks its promises.

    python -m tests.faults.kills [KILLS] [--seed N] [--jobs N] [--durability fsync|os]

Two producers send random reads to a daemon, which is repeatedly killed and restarted on its
journal; after ``LIVES`` kills the journal is checked, and another round begins. Only this process
remembers which batches were reported durable, and what a subscriber heard, which loses one message
in a hundred and pulls what it missed; another peer does not read. In the end every batch must be in
the journal once, with the results of one pass over the stream, and the subscriber must have heard
exactly that. In rounds with an even seed the dictionary grows; in the others its sources change and
are reloaded, and all answers must finally be those of the last dictionary. Half of the kills come
at the points of ``nursery.POINTS``.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple

from tests.faults.growing import Growing
from tests.faults.nursery import Nursery
from tests.faults.revising import Revising
from tests.faults.rounds import Round

# kills of one journal before it is checked
LIVES = 25

KINDS: tuple[type[Round], ...] = (Growing, Revising)
"""By the seed of a round."""


class Plan(NamedTuple):
    """The plan of a round. folder: where its folder is made. mistake: a bug to plant."""

    seed: int
    kills: int
    folder: Path
    durability: str
    mistake: str | None


class Checked(NamedTuple):
    """Counts of what was checked. missed: messages that a subscriber missed and pulled."""

    kills: Counter[str]
    batches: int
    messages: int
    missed: int

    def plus(self, more: Checked) -> Checked:
        """The sum of both."""
        rest = (a + b for a, b in zip(self[1:], more[1:], strict=True))
        return Checked(self.kills + more.kills, *rest)


def run(
    kills: int,
    seed: int,
    durability: str = "fsync",
    mistake: str | None = None,
    jobs: int = 1,
    lives: int = LIVES,
) -> Checked:
    """Kill the daemon ``kills`` times, in rounds with the seeds ``seed``, ``seed + 1``, ...

    AssertionError says what did not hold. Unless a mistake was planted, the folder of that round is
    kept, and standard error has the command that repeats it.
    """
    total = Checked(Counter(), 0, 0, 0)
    folder = Path(tempfile.mkdtemp(prefix="kills-"))
    plans = [
        Plan(seed + number, min(lives, kills - done), folder, durability, mistake)
        for number, done in enumerate(range(0, kills, lives))
    ]
    try:
        for outcome in _outcomes(plans, jobs):
            total = total.plus(outcome)
    except BaseException:
        if mistake is not None:
            shutil.rmtree(folder)
        raise
    shutil.rmtree(folder)
    return total


def _outcomes(plans: list[Plan], jobs: int) -> Iterator[Checked]:
    if jobs == 1:
        with nursery(plans[0].folder) as daemons:
            for plan in plans:
                yield _round(plan, daemons)
        return
    pool = ProcessPoolExecutor(jobs, get_context("spawn"))
    try:
        done: list[Future[Checked]] = [pool.submit(_in_pool, plan) for plan in plans]
        for future in as_completed(done):
            yield future.result()
    finally:
        pool.shutdown(cancel_futures=True)


def _in_pool(plan: Plan) -> Checked:
    return _round(plan, _own_nursery(plan.folder))


@cache
def _own_nursery(folder: Path) -> Nursery:
    """The nursery of this process; it ends when its standard input does."""
    return Nursery(_warm(folder))


@contextmanager
def nursery(folder: Path) -> Iterator[Nursery]:
    with Nursery(_warm(folder)) as daemons:
        yield daemons


def _warm(folder: Path) -> list[Path]:
    """Configurations of all kinds of rounds."""
    made = []
    for kind in KINDS:
        own = Path(tempfile.mkdtemp(prefix="warm-", dir=folder))
        made.append(kind.configure(own, "fsync"))
    return made


def _round(plan: Plan, daemons: Nursery) -> Checked:
    folder = plan.folder / f"round-{plan.seed}"
    folder.mkdir(mode=0o700)
    kind = KINDS[plan.seed % len(KINDS)]
    one = kind(daemons, folder, random.Random(plan.seed), plan.durability, plan.mistake)
    try:
        for _ in range(plan.kills):
            one.live_and_die()
        one.live_to_the_end()
        batches = one.check()
    except BaseException:
        if plan.mistake is None:
            _explain(plan, folder)
        raise
    finally:
        one.close()
    shutil.rmtree(folder)
    return Checked(one.died, batches, len(one.feed.order), one.feed.pulled)


def _explain(plan: Plan, folder: Path) -> None:
    again = f"{plan.kills} --seed {plan.seed} --durability {plan.durability}"
    print(
        f"round {plan.seed} failed; journal, log and configuration are in {folder}\n"
        f"{_log_of(folder)}repeat it with: scripts/faults/kill {again}",
        file=sys.stderr,
    )


def _log_of(folder: Path) -> str:
    log = folder / "log"
    return log.read_text() if log.exists() else ""


def _main() -> None:
    parser = argparse.ArgumentParser(description="Kill the daemon and check what it promised.")
    parser.add_argument("kills", type=int, nargs="?", default=1000)
    parser.add_argument("--seed", type=int, default=1, help=f"seed of the first {LIVES} kills")
    parser.add_argument("--jobs", type=int, default=1, help="daemons at a time")
    parser.add_argument("--durability", choices=("os", "fsync"), default="fsync")
    asked = parser.parse_args()
    last = asked.seed + (asked.kills - 1) // LIVES
    seeds = f"seeds {asked.seed} to {last}"
    print(f"rounds of {LIVES} kills with {seeds}, {asked.jobs} at a time", flush=True)
    begun = time.monotonic()
    found = run(asked.kills, asked.seed, asked.durability, jobs=asked.jobs)
    seconds = time.monotonic() - begun
    points = ", ".join(f"{count} {point}" for point, count in sorted(found.kills.items()))
    print(
        f"{asked.kills} kills in {seconds:.0f} s, {60 * asked.kills / seconds:.0f} a minute: "
        f"{points}; {found.batches} batches and {found.messages} messages, of which a subscriber "
        f"missed and pulled {found.missed}: lost 0, twice 0, divergent 0"
    )


if __name__ == "__main__":
    _main()
