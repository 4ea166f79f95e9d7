"""Fuzzing from a seed, which always gives the same inputs: changes of the seeds and the corpus."""

from __future__ import annotations

import random
import time

from tests.fuzz.corpus import kept
from tests.fuzz.targets import TARGETS, Target

_AT_ONCE = 64


class Failed(Exception):
    """An input was handled wrongly. inputs: those that lead to the failure from ``seed`` on."""

    def __init__(self, seed: int, inputs: list[bytes]) -> None:
        self.seed, self.inputs = seed, inputs
        super().__init__(f"the last of {len(inputs)} inputs, from seed {seed} on")


def fuzz(name: str, *, seconds: float = 0, runs: int = 0, seed: int = 1) -> Target:
    """Make inputs for this long, or this many; returns the target that took them, or Failed."""
    target = TARGETS[name]()
    try:
        return _fuzzed(target, name, seconds, runs, seed)
    finally:
        target.close()


def _fuzzed(target: Target, name: str, seconds: float, runs: int, seed: int) -> Target:
    target.begin(seed << 32)
    step = target.maker(kept(name))
    rng = random.Random(seed)
    end = time.monotonic() + seconds if seconds else float("inf")
    done = 0
    try:
        while (not runs or done < runs) and time.monotonic() < end:
            for _ in range(min(_AT_ONCE, runs - done) if runs else _AT_ONCE):
                step(rng)
                done += 1
        target.finish()
    except Exception as error:
        raise Failed(target.seed, target.left()) from error
    return target
