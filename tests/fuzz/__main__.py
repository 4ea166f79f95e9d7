"""Fuzz one target or all of them.

python -m tests.fuzz TARGET|all [--seconds N | --runs N] [--seed N]
"""

from __future__ import annotations

import argparse
import sys
import time
import traceback

from tests.fuzz.targets import TARGETS, Failed, fuzz, replay, save_failure, saved_failure


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
    parser.add_argument("--replay", metavar="FILE", help="repeat the inputs that led to a failure")
    asked = parser.parse_args()
    if asked.replay:
        _again(asked.target, asked.replay)
        return 0
    seconds = asked.seconds or (0 if asked.runs else 60)
    fine = True
    for name in TARGETS if asked.target == "all" else [asked.target]:
        fine &= _seeded(name, seconds, asked.runs, asked.seed)
    return not fine


if __name__ == "__main__":
    sys.exit(_main())
