"""What approximate matching asks of a solver, and the options that all of them share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from streamer.matching.approximate.result import Found, Step
from streamer.reads import ReadBatch


@dataclass(frozen=True, slots=True)
class Options:
    """Where and how to match.

    method: a solver's own name for a method, or ``auto``. chunk, streams, cards, device_bytes,
    on_fallback: as the matcher's, for CUDA. threads: of the CPU.
    """

    method: str = "auto"
    device: Literal["cpu", "cuda"] = "cpu"
    threads: int = 1
    chunk: int = 1_000_000
    streams: int = 2
    cards: Sequence[int] = (0,)
    device_bytes: int = 0
    on_fallback: Callable[[str], None] | None = None


class Solver(Protocol):
    """Answers for the ends of a batch, and learns k-mers. A solver is made from

    (codes uint64[n] ascending, k, distance, both, options).
    """

    def learn(self, codes: NDArray[np.uint64]) -> None:
        """Add stored k-mers, in any order; some may be known."""

    def match(self, batch: ReadBatch, step: Step) -> Found:
        """What ends at the symbols [step.first, step.stop) of the batch, that is at those + 1.

        What a match needs from before ``first`` is in the batch.
        """

    def close(self) -> None:
        """Give back what is held."""
