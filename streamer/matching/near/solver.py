"""What approximate matching asks of a solver, and what all of them share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from streamer.devices import KERNELS, GpuOrCpu, OnFallback
from streamer.errors import UsageError
from streamer.matching.near.near_result import Found, Step
from streamer.sequences.read_batch import ReadBatch

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
    on_fallback: OnFallback | None = None


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

    def share(self, gpu: GpuOrCpu) -> None:
        """Give GPUs up together with others, and report that once."""

    def close(self) -> None:
        """Give back what is held."""


LEAST_CHUNK = 1 << 16
"""Symbols of the shortest chunk that is tried where the GPU's memory is short."""


class CardOrCpu:
    """A solver's engine on GPUs, and the CPU that takes over if one fails or is too small.

    Then ``on_fallback`` gets one line; without it that is a StreamerError. UsageError for a method
    that ``semantics`` does not have. chunk: symbols of a chunk, fewer once memory is short.
    """

    def __init__(self, semantics: str, options: Options, chunk: int) -> None:
        names = KERNELS[semantics]
        if options.method not in names:
            message = f"the kernel '{options.method}' is not for {semantics}: {', '.join(names)}"
            raise UsageError(message)
        self._options = options
        self._chunk = chunk
        self._gpu = GpuOrCpu(options.on_fallback, "matching")
        self._engine: Any = None

    def share(self, gpu: GpuOrCpu) -> None:
        """Give GPUs up together with others, and report that once."""
        gpu.given_up |= self._gpu.given_up
        self._gpu = gpu

    def _made(self) -> Any:
        """A new engine, for chunks of ``_chunk`` symbols."""
        raise NotImplementedError

    def _begin(self) -> None:
        """Have the engine, so that what does not fit is known before the first batch."""
        self._gpu.run(self._ready, self.close, self._smaller)

    def _on_cards(self, on_gpu: Callable[[Any], _T], on_cpu: Callable[[], _T]) -> _T:
        """What the engine gives, or the CPU."""

        def instead() -> _T:
            self.close()
            return on_cpu()

        return self._gpu.run(lambda: on_gpu(self._ready()), instead, self._smaller)

    def _ready(self) -> Any:
        if self._engine is None:
            self._engine = self._made()
        return self._engine

    def _smaller(self) -> bool:
        """Free the engine's memory; it is made again for chunks half as long."""
        self.close()
        self._chunk //= 2
        return self._chunk >= LEAST_CHUNK

    def close(self) -> None:
        """Give the memory on the GPUs back."""
        if self._engine is not None:
            self._engine.close()
            self._engine = None
