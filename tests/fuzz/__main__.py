"""Fuzz one target or all of them.

python -m tests.fuzz TARGET|all [--seconds N | --runs N] [--seed N] [--driver D] [--keep]
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path

from tests.fuzz.corpus import keep, save_failure, saved_failure
from tests.fuzz.seeded import Failed, fuzz
from tests.fuzz.targets import LONGEST, TARGETS, replay


def _seeded(name: str, seconds: float, runs: int, seed: int) -> bool:
    """Fuzz from a seed; returns whether nothing failed."""
    begun = time.monotonic()
    try:
        target = fuzz(name, seconds=seconds, runs=runs, seed=seed)
    except Failed as failed:
        traceback.print_exc()
        place = save_failure(name, failed.seed, failed.inputs)
        print(f"{name}: seed {seed} FAILED; again: --replay {place}", file=sys.stderr)
        return False
    took, total = time.monotonic() - begun, target.became.total()
    parts = ", ".join(f"{what} {count}" for what, count in target.became.most_common())
    print(f"{name}: seed {seed}, {total} inputs in {took:.0f} s, none failed: {parts}", flush=True)
    return True


def _guided(name: str, seconds: float, runs: int, seed: int, *, kept: bool) -> bool:
    """Fuzz by coverage; returns whether nothing failed."""
    folder = Path(tempfile.mkdtemp(prefix=f"fuzz-{name}-"))
    found = folder / "corpus"
    found.mkdir()
    options = [f"-seed={seed}", f"-max_len={LONGEST}", "-rss_limit_mb=4096", "-timeout=60"]
    options += [f"-artifact_prefix={folder}/", "-print_final_stats=1"]
    options += [f"-max_total_time={int(seconds)}"] if seconds else [f"-runs={runs}"]
    call = [sys.executable, "-m", "tests.fuzz.guided", name, str(found), *options]
    # libFuzzer ends the process before it can remove anything
    place = os.environ | {"TMPDIR": str(folder)}
    done = subprocess.run(call, capture_output=True, text=True, check=False, env=place)
    lines = done.stderr.splitlines()
    if done.returncode:
        print(done.stdout, *lines[-10:], sep="\n")
    executed = [line.split()[-1] for line in lines if "number_of_executed_units" in line]
    print(f"{name}: atheris, seed {seed}, {''.join(executed)} inputs, exit {done.returncode}")
    if kept:
        new = keep(name, (one.read_bytes() for one in found.iterdir() if "seed-" not in one.name))
        print(f"{name}: {new} inputs are new in the corpus")
    if not done.returncode:
        shutil.rmtree(folder)
    return done.returncode == 0


def _again(name: str, path: str) -> None:
    seed, inputs = saved_failure(path)
    replay(name, inputs, seed)
    print("none failed")


def _main() -> int:
    parser = argparse.ArgumentParser(description="Fuzz code that reads foreign bytes, without I/O.")
    parser.add_argument("target", choices=[*TARGETS, "all"])
    parser.add_argument("--seconds", type=float, default=0, help="for each target, 60 by default")
    parser.add_argument("--runs", type=int, default=0, help="or inputs for each target")
    parser.add_argument("--seed", type=int, default=1)
    drivers = ("auto", "atheris", "seeded")
    parser.add_argument(
        "--driver", choices=drivers, default="auto", help="auto: atheris if it is there"
    )
    parser.add_argument("--keep", action="store_true", help="add what atheris finds to the corpus")
    parser.add_argument("--replay", metavar="FILE", help="repeat the inputs that led to a failure")
    asked = parser.parse_args()
    if asked.replay:
        _again(asked.target, asked.replay)
        return 0
    seconds = asked.seconds or (0 if asked.runs else 60)
    there = importlib.util.find_spec("atheris") is not None
    driver = asked.driver if asked.driver != "auto" else "atheris" if there else "seeded"
    fine = True
    for name in TARGETS if asked.target == "all" else [asked.target]:
        print(f"{name}: driver {driver}", flush=True)
        if driver == "atheris":
            fine &= _guided(name, seconds, asked.runs, asked.seed, kept=asked.keep)
        else:
            fine &= _seeded(name, seconds, asked.runs, asked.seed)
    return not fine


if __name__ == "__main__":
    sys.exit(_main())
