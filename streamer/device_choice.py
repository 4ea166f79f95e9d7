"""Choose the device that work runs on, and fall back to the CPU when a GPU fails."""

import json
import logging
import os
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Literal, TypeVar

from streamer.errors import SnapshotTooLargeError, StreamerError
from trie.cpu.compiling import GPU_FOLDER, MADE_FOR, SHIPPED, gpu_compilers, kernel_folder

_log = logging.getLogger(__name__)
_T = TypeVar("_T")

Kind = Literal["exact", "grow", "near", "ltb", "asm", "hamming", "primer", "lcs"]

COMPILE_SECONDS = 10.0
"""Additional seconds if no GPU kernel is stored yet."""

RATES = "rates.json"
"""The file of ``Rates``, beside the compiled kernels."""

OnFallback = Callable[[str], None]  # called with one line when a GPU is given up for the CPU


@dataclass(frozen=True, slots=True)
class Rates:
    """How fast this machine is; by device, ``cpu`` and ``cuda``.

    start: seconds of a command with a tiny file. factors: for each kind of work the seconds here
    for each second on the machine of docs/performance. measured: by ``streamer warm-up``, not those
    of that machine.
    """

    start: Mapping[str, float]
    factors: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    measured: bool = False

    def seconds(self, device: str, kind: Kind, work: float) -> float:
        """Seconds of a command whose work takes so many on the machine of docs/performance."""
        return self.start[device] + self.factors.get(device, {}).get(kind, 1.0) * work


REFERENCE = Rates({"cpu": 0.55, "cuda": 1.0})
"""An NVIDIA H200 and its host with 16 cores."""


def machine() -> list[object]:
    """The machine that rates were measured on."""
    from trie.cpu.machine import processor_name
    from trie.cpu.threads import usable_cores

    return [os.uname().nodename, processor_name(), usable_cores()]


@cache
def rates() -> Rates:
    """The stored rates of this machine, or REFERENCE."""
    folder = kernel_folder().path
    try:
        assert folder is not None
        measured = json.loads((folder / RATES).read_text())
        if measured["machine"] == machine():
            return Rates(REFERENCE.start | measured["start"], measured["factors"], measured=True)
    except (AssertionError, OSError, ValueError, KeyError, TypeError):
        pass
    return REFERENCE


@dataclass(frozen=True, slots=True)
class Cost:
    """Seconds of a whole command beyond its start, on the machine of docs/performance.

    kind: the work, whose rates are measured. cpu, host: of one thread, on the CPU alone and with a
    GPU. cpu_in_turn, host_in_turn: of what threads do not share, kernels of a GPU included. of: the
    size that is taken for one that is not known.
    """

    kind: Kind
    cpu: float
    cpu_in_turn: float
    host: float
    host_in_turn: float
    of: str = ""

    def beyond_start(self, device: str, threads: int) -> float:
        """Seconds of the work on that machine."""
        if device == "cpu":
            return self.cpu / threads + self.cpu_in_turn
        return self.host / threads + self.host_in_turn

    def on_cpu(self, threads: int) -> float:
        """Seconds on the CPU of this machine."""
        return rates().seconds("cpu", self.kind, self.beyond_start("cpu", threads))

    def on_gpu(self, threads: int) -> float:
        """Seconds with a GPU of this machine that has not been used yet."""
        if _simulated():
            return 0.0
        seconds = rates().seconds("cuda", self.kind, self.beyond_start("cuda", threads))
        return seconds if _stored_kernels() else seconds + COMPILE_SECONDS


def _simulated() -> bool:
    """Return whether numba's simulator replaces a GPU; its speed does not matter."""
    return os.environ.get("NUMBA_ENABLE_CUDASIM", "0") != "0"


def _stored_kernels() -> bool:
    """Return whether compiled GPU kernels are stored, or came with the package and fit."""
    folder, record = kernel_folder().path, SHIPPED / GPU_FOLDER / MADE_FOR
    if folder is not None and any((folder / GPU_FOLDER).glob("*.kernel")):
        return True
    return record.is_file() and record.read_text().startswith(gpu_compilers())


def cuda_problem() -> str | None:
    """Return in one line why no CUDA device can be used; None if one can."""
    from gpu.card.device import devices

    try:
        known = devices()
        if not known:
            return "no CUDA device"
        # whether kernels work shows only when they are loaded
        import gpu.exact  # noqa: F401
    except (RuntimeError, ImportError) as error:
        return str(error)
    return None


Estimate = Callable[[], Cost | None]
"""The cost of a command; None if it is unknown. Called only where there may be a GPU."""


def judged(estimate: Estimate | None, threads: int = 0) -> tuple[str | None, str]:
    """Why to use the CPU, in one line: no CUDA device, or the CPU is faster; None for a GPU.

    Then the seconds on a GPU and on the CPU, for a user, if the GPU is used and the cost is known.
    """
    from gpu.card.device import driver_found

    cost = estimate() if estimate is not None and driver_found() else None
    if cost is None:
        return cuda_problem(), ""
    from trie.cpu.threads import most_threads, usable_cores

    threads = min(threads or usable_cores(), most_threads())
    cpu, gpu = cost.on_cpu(threads), cost.on_gpu(threads)
    about = f"{cost.of}: about" if cost.of else "about"
    if cpu < gpu:
        return f"{about} {cpu:.1f} s, with a GPU {gpu:.1f} s", ""
    return cuda_problem(), f"{about} {gpu:.1f} s, on the CPU {cpu:.1f} s"


def choose_device(
    device: str,
    *,
    kernel: str | None = None,
    option: str = "--device",
    report: Callable[[str], None] | None = None,
    cost: Estimate | None = None,
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
    problem, seconds = (None, "") if device == "cpu" else judged(cost if ask else None, threads)
    if device == "cuda" and problem is not None:
        raise StreamerError(f"{option} cuda: {problem}; use {option} cpu or auto")
    chosen: Literal["cpu", "cuda"] = "cpu" if device == "cpu" or problem is not None else "cuda"
    if chosen == "cpu" and kernel is not None:
        message = f"the kernel '{kernel}' needs a CUDA device" + (f": {problem}" if problem else "")
        raise StreamerError(message)
    if device == "auto" and report is not None:
        report(shown(chosen, problem, limit=gpus, seconds=seconds))
    return chosen


def usable_cards(limit: int = 0) -> list[int]:
    """The numbers of up to ``limit`` CUDA devices (0: all); StreamerError if there is none."""
    from gpu.card.device import devices

    try:
        numbers = [device.number for device in devices()]
    except RuntimeError as error:
        raise StreamerError(str(error)) from None
    if not numbers:
        raise StreamerError("no CUDA device")
    return numbers[: limit or None]


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


def shown(
    chosen: str, problem: str | None, verb: str = "matching", limit: int = 0, seconds: str = ""
) -> str:
    """Return one line for the user: where work runs, on up to ``limit`` GPUs, or why on no GPU.

    seconds: as of ``judged``.
    """
    if chosen == "cuda":
        from gpu.card.device import devices

        names = ", ".join(device.name for device in devices()[: limit or None])
        return f"{verb} on {names} (CUDA{seconds and ', '}{seconds})"
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
