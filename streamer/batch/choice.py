"""Which method of a solver runs, and on which device; and its engine."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Generic, Literal, TypeVar

from streamer import device_choice
from streamer.device_choice import Effort, GpuOrCpu, OnFallback, log_fallback, shown
from streamer.errors import StreamerError, UsageError

Device = Literal["cpu", "cuda"]
Engine = TypeVar("Engine")
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Choice:
    """A method's name, the device it runs on, and why it is not CUDA where that was possible.

    cpu_method: what the CPU runs if the GPU fails, None for the same method. on_fallback: takes the
    line that reports it; with None a failure of the GPU is a StreamerError.
    """

    method: str
    device: Device
    problem: str | None = None
    cpu_method: str | None = None
    on_fallback: OnFallback | None = None

    def line(self) -> str:
        """One line for the user: where it runs."""
        return shown(self.device, self.problem, verb="running")

    def gpu_or_cpu(self) -> GpuOrCpu:
        """Runs the parts of one search that was chosen for CUDA."""
        return GpuOrCpu(self.on_fallback)

    def on_cpu(self) -> Choice:
        """The choice if the GPU fails."""
        return Choice(self.cpu_method or self.method, "cpu")


def choose(
    methods: Mapping[str, tuple[Device, ...]],
    default: str,
    method: str | None,
    device: str,
    on_fallback: OnFallback = log_fallback,
    effort: Effort | None = None,
    threads: int = 0,
) -> Choice:
    """The method and device for a request: ``device`` auto, cpu or cuda, ``method`` or None.

    ``methods`` names the devices that have each method; the ``default`` runs on both. ``auto``
    takes CUDA if the method has it and it is usable; if the GPU fails later, the CPU takes over and
    ``on_fallback`` gets one line. With an ``effort`` it takes what ends first with so many threads.
    UsageError for an unknown method or one that the device lacks; StreamerError, with the reason,
    where CUDA is needed and not usable.
    """
    if device not in ("auto", "cpu", "cuda"):
        message = f"unknown device '{device}'; there are auto, cpu, cuda"
        raise UsageError(message)
    if method is not None and method not in methods:
        message = f"unknown method '{method}'; there are {', '.join(methods)}"
        raise UsageError(message)
    name = default if method is None else method
    has = methods[name]
    if device != "auto" and device not in has:
        message = f"the method '{method}' runs on {', '.join(has)}, not on {device}"
        raise UsageError(message)
    if device == "cpu" or "cuda" not in has:
        problem = None if device == "cpu" else f"the method '{method}' is for it"
        return Choice(name, "cpu", problem)
    ask = device == "auto" and "cpu" in has
    problem = device_choice.unsuited(effort if ask else None, threads)
    if problem is None:
        cpu_method = name if "cpu" in has else default
        return Choice(name, "cuda", None, cpu_method, on_fallback if device == "auto" else None)
    if device == "cuda" or "cpu" not in has:
        what = f"the method '{method}' needs a CUDA device" if method else "no CUDA device"
        message = f"{what}: {problem}"
        raise StreamerError(message)
    return Choice(name, "cpu", problem)


class ChosenEngine(Generic[Engine]):
    """The engine of a choice; once the GPU has failed, that of the CPU.

    A solver says how to make it, and how its work can become smaller where the GPU's memory is
    short. made: the engine; None makes it again when it is next needed.
    """

    def __init__(self, choice: Choice) -> None:
        self.choice = choice
        self.made: Engine | None = None
        self._gpu = choice.gpu_or_cpu()
        self.run(lambda: self.engine)

    @property
    def engine(self) -> Engine:
        """The engine, made if there is none."""
        if self.made is None:
            self.made = self.make(self.choice)
        return self.made

    def run(self, work: Callable[[], Result]) -> Result:
        """What ``work`` returns; it is called again after the GPU has failed."""
        if self.choice.device == "cpu":
            return work()
        return self._gpu.run(work, partial(self._on_cpu, work), self.smaller)

    def _on_cpu(self, work: Callable[[], Result]) -> Result:
        self.choice = self.choice.on_cpu()
        self.made = None
        self.fell_back()
        return work()

    def make(self, choice: Choice) -> Engine:
        """The engine of a choice."""
        raise NotImplementedError

    def smaller(self) -> bool:
        """Free memory of the GPU and take smaller pieces; False if they are the smallest."""
        raise NotImplementedError

    def fell_back(self) -> None:
        """The CPU has taken over."""
