"""The solver of one distance semantics: an engine on GPUs, or the CPU if that fails."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from streamer.device_choice import GpuOrCpu
from streamer.dictionary.targets import Dictionary
from streamer.matching.near.near_result import ApproximateResult, Found
from streamer.matching.near.steps import Step
from streamer.matching.spec import MatchSpec
from streamer.sequences.read_batch import ReadBatch

_T = TypeVar("_T")

LEAST_CHUNK = 1 << 16  # least symbols per chunk tried when GPU memory is short


class Solver:
    """Matches the ends of batches, and learns k-mers.

    gpu: runs the GPU work, and reports once if the GPUs were given up. cpu_kernel: a kernel that
    runs on the CPU whatever the device. chunk: symbols per chunk, fewer once memory is short.
    """

    walks = False  # whether steps must come with a Tree Bitmap

    def __init__(
        self, spec: MatchSpec, gpu: GpuOrCpu, threads: int, *, cpu_kernel: str, chunk: int
    ) -> None:
        assert spec.distance is not None
        self._spec = spec
        self._k = spec.k
        self._distance = spec.distance
        self._kernel = spec.near_kernel
        self._threads = threads
        self._chunk = chunk
        self._gpu = gpu
        self._engine: Any = None
        self._on_gpu = spec.device == "cuda" and self._kernel != cpu_kernel
        if self._on_gpu:
            # fail before the first batch if something does not fit
            gpu.run(self._ready, self.close, self._smaller)

    def match_steps(
        self, batch: ReadBatch, steps: Sequence[Step], stored: Dictionary
    ) -> ApproximateResult:
        """Find everything within the distance in a batch; ``stored`` names the targets."""
        parts = []
        for step in steps:
            if step.stop > step.first:
                parts.append((step.version, self.match(batch, step)))
            if step.learned.size:
                self.learn(step.learned)
        return ApproximateResult.of(batch, parts, stored, self._spec, self._threads)

    def learn(self, codes: NDArray[np.uint64]) -> None:
        """Add stored k-mers, in any order; some may be known. A no-op if steps provide the tree."""

    def match(self, batch: ReadBatch, step: Step) -> Found:
        """Find what ends at the symbols [step.first, step.stop) of the batch, i.e. at those + 1.

        The batch includes what a match needs from before ``first``.
        """
        raise NotImplementedError

    def close(self) -> None:
        """Free the memory on the GPUs."""
        if self._engine is not None:
            self._engine.close()
            self._engine = None

    def _new_engine(self, **options: Any) -> Any:
        """Create an engine on GPUs with these options."""
        raise NotImplementedError

    def _run(self, on_gpu: Callable[[Any], _T], on_cpu: Callable[[], _T]) -> _T:
        """Return the result of the engine, or of the CPU."""

        def instead() -> _T:
            self.close()
            return on_cpu()

        if not self._on_gpu:
            return on_cpu()
        return self._gpu.run(lambda: on_gpu(self._ready()), instead, self._smaller)

    def _ready(self) -> Any:
        if self._engine is None:
            spec = self._spec
            self._engine = self._new_engine(
                chunk=self._chunk, streams=spec.streams, cards=spec.cards,
                memory_bytes=spec.device_bytes, threads=self._threads,
            )  # fmt: skip
        return self._engine

    def _smaller(self) -> bool:
        """Free the engine's memory; the next engine gets chunks half as long."""
        self.close()
        self._chunk //= 2
        return self._chunk >= LEAST_CHUNK
