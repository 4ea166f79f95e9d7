"""What approximate matching asks of a solver, and what all of them share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from streamer.devices import KERNELS
from streamer.errors import StreamerError, UsageError
from streamer.matching.approximate.result import Found, Step
from streamer.reads import ReadBatch

_T = TypeVar("_T")


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


class CardOrCpu:
    """A solver's engine on cards, and the CPU that goes on if one fails or is too small.

    Then ``on_fallback`` is told in one line; without it that is a StreamerError. UsageError for a
    method that ``semantics`` does not have.
    """

    def __init__(self, semantics: str, options: Options) -> None:
        names = KERNELS[semantics]
        if options.method not in names:
            message = f"the kernel '{options.method}' is not for {semantics}: {', '.join(names)}"
            raise UsageError(message)
        self._options = options
        self._engine: Any = None

    def _on_cards(self, run: Callable[[], _T]) -> _T | None:
        """What ``run`` gives; None where the CPU goes on."""
        from gpu.engine import CudaEngineError

        try:
            return run()
        except CudaEngineError as error:
            self.close()
            if self._options.on_fallback is None:
                raise StreamerError(str(error)) from error
            self._options.on_fallback(f"{error}; matching on the CPU")
            return None

    def close(self) -> None:
        """Give the memory on the cards back."""
        if self._engine is not None:
            self._engine.close()
            self._engine = None
