"""Choose the device that work runs on, and fall back to the CPU when a GPU fails."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeVar

from streamer.errors import SnapshotTooLargeError, StreamerError
from trie.cpu.compiling import GPU_FOLDER, kernel_folder

_log = logging.getLogger(__name__)
_T = TypeVar("_T")

START_SECONDS = 1.5
"""Seconds until a GPU runs its first kernel: CUDA packages, a context, kernels loaded from disk."""

COMPILE_SECONDS = 10.0
"""Additional seconds if no GPU kernel is stored yet."""

_FASTER = 200  # a GPU is this many times as fast as a CPU thread, once the data are there

OnFallback = Callable[[str], None]  # called with one line when a GPU is given up for the CPU


@dataclass(frozen=True, slots=True)
class Cost:
    """Seconds of one thread for a whole command, on the CPU alone and with a GPU.

    in_turn: the part of those with a GPU that more threads do not reduce.
    """

    cpu: float
    host: float
    in_turn: float = 0.0

    def on_cpu(self, threads: int) -> float:
        """Seconds on the CPU."""
        return self.cpu / threads

    def on_gpu(self, threads: int) -> float:
        """Seconds with a GPU that has not been used yet."""
        if _simulated():
            return 0.0
        seconds = START_SECONDS + max(self.host / threads, self.in_turn, self.cpu / _FASTER)
        return seconds if _stored_kernels() else seconds + COMPILE_SECONDS


def _simulated() -> bool:
    """Return whether numba's simulator replaces a GPU; its speed does not matter."""
    return os.environ.get("NUMBA_ENABLE_CUDASIM", "0") != "0"


def _stored_kernels() -> bool:
    """Return whether ``gpu.card.kernel_cache`` has stored compiled GPU kernels."""
    folder = kernel_folder().path
    return folder is not None and any((folder / GPU_FOLDER).glob("*.kernel"))


def cuda_problem() -> str | None:
    """Return in one line why no CUDA device can be used; None if one can."""
    from gpu.card.device import devices

    try:
        found = devices()
        if not found:
            return "no CUDA device"
        # whether kernels work shows only when they are loaded
        import gpu.exact  # noqa: F401
    except (RuntimeError, ImportError) as error:
        return str(error)
    return None


def unsuited(cost: Cost | None, threads: int = 0) -> str | None:
    """Return in one line why to use the CPU: no CUDA device, or the CPU is faster; else None."""
    from gpu.card.device import driver_found

    if cost is not None and driver_found():
        from trie.cpu.threads import most_threads, usable_cores

        threads = min(threads or usable_cores(), most_threads())
        cpu, gpu = cost.on_cpu(threads), cost.on_gpu(threads)
        if cpu < gpu:
            return f"about {cpu:.1f} s, with a GPU {gpu:.1f} s"
    return cuda_problem()


def choose_device(
    device: str,
    *,
    kernel: str | None = None,
    option: str = "--device",
    report: Callable[[str], None] | None = None,
    cost: Cost | None = None,
    threads: int = 0,
    gpus: int = 0,
) -> Literal["cpu", "cuda"]:
    """Choose the device for ``auto``, ``cpu`` or ``cuda``; raise StreamerError if unavailable.

    kernel: one that needs CUDA. option: the user's option for the device. report: called with one
    line that says what ``auto`` has chosen: the faster device, judged by the ``cost`` with so
    many ``threads`` (0: one per core), or CUDA if the cost is unknown. gpus: how many GPUs that
    line names at most (0: all).
    """
    ask = device == "auto" and kernel is None
    problem = None if device == "cpu" else unsuited(cost if ask else None, threads)
    if device == "cuda" and problem is not None:
        raise StreamerError(f"{option} cuda: {problem}; use {option} cpu or auto")
    chosen: Literal["cpu", "cuda"] = "cpu" if device == "cpu" or problem is not None else "cuda"
    if chosen == "cpu" and kernel is not None:
        message = f"the kernel '{kernel}' needs a CUDA device" + (f": {problem}" if problem else "")
        raise StreamerError(message)
    if device == "auto" and report is not None:
        report(shown(chosen, problem, limit=gpus))
    return chosen


def usable_cards(limit: int = 0) -> list[int]:
    """The numbers of up to ``limit`` CUDA devices (0: all); StreamerError if there is none."""
    from gpu.card.device import devices

    try:
        found = [device.number for device in devices()]
    except RuntimeError as error:
        raise StreamerError(str(error)) from None
    if not found:
        raise StreamerError("no CUDA device")
    return found[: limit or None]


def stream_cards(
    limit: int, *, changes: bool, report: Callable[[str], None] | None = None
) -> tuple[int, ...]:
    """Like ``usable_cards``, for a stream: only one GPU if its dictionary ``changes``.

    report: called with one line that says why, if there are more GPUs.
    """
    cards = tuple(usable_cards(limit))
    if not changes or len(cards) == 1:
        return cards
    if report is not None:
        report(
            f"a growing dictionary uses one GPU, not {len(cards)}: each chunk has to know the new "
            "k-mers of the one before it"
        )
    return cards[:1]


def shown(chosen: str, problem: str | None, verb: str = "matching", limit: int = 0) -> str:
    """Return one line for the user: where work runs, on up to ``limit`` GPUs, or why on no GPU."""
    if chosen == "cuda":
        from gpu.card.device import devices

        names = ", ".join(device.name for device in devices()[: limit or None])
        return f"{verb} on {names} (CUDA)"
    from trie.cpu.threads import usable_cores

    return f"{verb} on the CPU, {usable_cores()} cores ({problem})"


def log_fallback(line: str) -> None:
    """Log that the CPU takes over from a GPU."""
    _log.warning("%s", line)


class GpuOrCpu:
    """Runs work on the GPU, and on the CPU once the GPU has failed.

    on_fallback: called with one line when the GPU is given up; if None, StreamerError is raised
    instead. verb: what the CPU does, in that line. given_up: there is no GPU. Threads that share an
    instance report a lost GPU once, and run on the CPU in turn, for each uses all cores.
    """

    def __init__(
        self, on_fallback: OnFallback | None, verb: str = "running", *, given_up: bool = False
    ) -> None:
        self._on_fallback = on_fallback
        self._verb = verb
        self._one_reports = threading.Lock()
        self._cpu_turn = threading.RLock()
        self.given_up = given_up

    def run(
        self,
        on_gpu: Callable[[], _T],
        on_cpu: Callable[[], _T],
        smaller: Callable[[], bool] = lambda: False,
    ) -> _T:
        """Return the result of ``on_gpu`` or, once the GPU has failed, of ``on_cpu``.

        If GPU memory is short, ``smaller`` frees what it can and makes pieces smaller, and
        ``on_gpu`` runs again. ``smaller`` returns False if pieces cannot be made smaller.
        """
        problem, short = "", False
        while not self.given_up:
            from gpu.card import cuda_errors

            try:
                with cuda_errors.translated_driver_errors():
                    if not short or smaller():
                        return on_gpu()
            except cuda_errors.OutOfMemoryError as error:
                problem, short = str(error), True
                continue  # the frames of the failed call have freed their memory by then
            except (cuda_errors.CudaEngineError, SnapshotTooLargeError) as error:
                if self._on_fallback is None:
                    raise StreamerError(_advised(error)) from error
                problem = str(error)
            self._give_up(problem)
        with self._cpu_turn:
            return on_cpu()

    def _give_up(self, problem: str) -> None:
        if self._on_fallback is None:
            raise StreamerError(_advised(problem))
        with self._one_reports:
            first, self.given_up = not self.given_up, True
        if first:
            self._on_fallback(f"{problem}; {self._verb} on the CPU")


def _advised(problem: object) -> str:
    return f"{problem}; use the device cpu or auto"
