"""Run seeds, or repeat one: ``scripts/faults/simulate`` and ``scripts/faults/replay``."""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from itertools import count

from tests.simulation.daemon_host import DaemonHost
from tests.simulation.mistakes import MISTAKES
from tests.simulation.promises import Violation
from tests.simulation.storm import FAULTS
from tests.simulation.world import RunReport, run


def simulate(arguments: list[str]) -> int:
    """Run seeds; returns 1 if a promise was broken."""
    parser = argparse.ArgumentParser(prog="scripts/faults/simulate", description=simulate.__doc__)
    parser.add_argument("seeds", nargs="?", type=int, default=500, help="how many")
    parser.add_argument("--seconds", type=float, help="run for this long instead")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    _add_mistake(parser)
    given = parser.parse_args(arguments)
    begun, failed = time.monotonic(), 0
    reports: list[RunReport] = []
    for seed in count(given.first):
        seconds = time.monotonic() - begun
        if len(reports) == given.seeds if given.seconds is None else seconds > given.seconds:
            break
        try:
            reports.append(run(seed, _daemon(given)))
        except Exception as error:
            failed += 1
            what = str(error) if isinstance(error, Violation) else repr(error)
            print(f"seed {seed}: {what}; again: {_again(seed, given.mistake)}", flush=True)
            reports.append(RunReport())
    _say(reports, failed, time.monotonic() - begun)
    return 1 if failed else 0


def replay(arguments: list[str]) -> int:
    """Repeat a seed and print its events; returns 1 if a promise was broken."""
    parser = argparse.ArgumentParser(prog="scripts/faults/replay", description=replay.__doc__)
    parser.add_argument("seed", type=int)
    _add_mistake(parser)
    given = parser.parse_args(arguments)
    try:
        report = run(given.seed, _daemon(given), print)
    except Violation as violation:
        print(violation)
        return 1
    print(report)
    return 0


def _add_mistake(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--mistake", choices=MISTAKES, help="a bug of the daemon")


def _daemon(given: argparse.Namespace) -> type[DaemonHost]:
    return MISTAKES[given.mistake] if given.mistake else DaemonHost


def _again(seed: int, mistake: str | None) -> str:
    return f"scripts/faults/replay {seed}" + (f" --mistake '{mistake}'" if mistake else "")


def _say(reports: list[RunReport], failed: int, seconds: float) -> None:
    faults = sum((report.faults for report in reports), Counter[str]())
    print(
        f"simulate: {len(reports)} seeds, {failed} failed "
        f"({seconds:.0f} s, {60 * len(reports) / seconds:.0f} seeds a minute): "
        f"{sum(r.seconds for r in reports):.0f} s of simulated time, "
        f"{sum(r.steps for r in reports):,} steps, {sum(r.starts for r in reports):,} starts, "
        f"{sum(r.records for r in reports):,} records, "
        f"{sum(r.messages for r in reports):,} messages compared"
    )
    print("faults: " + ", ".join(f"{kind} {faults[kind]:,}" for kind in FAULTS))


if __name__ == "__main__":
    sys.exit({"simulate": simulate, "replay": replay}[sys.argv[1]](sys.argv[2:]))
