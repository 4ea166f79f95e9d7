"""Which method runs, and where: a paper's methods by name, and the default of each device."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from streamer.devices import GpuOrCpu, OnFallback, log_fallback
from streamer.errors import StreamerError, UsageError

Device = Literal["cpu", "cuda"]


@dataclass(frozen=True, slots=True)
class Choice:
    """A method's name, the device it runs on, and why it is not CUDA where that was possible.

    cpu_method: what the CPU runs if the GPU fails, None for the same method. on_fallback: takes the
    line that says so; with None a GPU that fails is a StreamerError.
    """

    method: str
    device: Device
    problem: str | None = None
    cpu_method: str | None = None
    on_fallback: OnFallback | None = None

    def line(self) -> str:
        """One line for the user: where it runs."""
        from streamer.devices import shown

        return shown(self.device, self.problem, verb="running")

    def gpu_or_cpu(self) -> GpuOrCpu:
        """What runs the parts of one search that was chosen for CUDA."""
        return GpuOrCpu(self.on_fallback)

    def on_cpu(self) -> Choice:
        """What runs on the CPU if the GPU fails."""
        return Choice(self.cpu_method or self.method, "cpu")


def choose(
    methods: Mapping[str, tuple[Device, ...]],
    defaults: Mapping[Device, str],
    method: str | None,
    device: str,
    on_fallback: OnFallback = log_fallback,
) -> Choice:
    """The method and device for what was asked: ``device`` auto, cpu or cuda, ``method`` or None.

    ``methods`` names the devices that have each method. ``auto`` takes CUDA if the method has it
    and it is usable; if the GPU fails later, the CPU takes over and ``on_fallback`` gets one line.
    UsageError for an unknown method or one that the device lacks; StreamerError where CUDA is
    needed and cannot be had, with the reason.
    """
    if device not in ("auto", "cpu", "cuda"):
        message = f"unknown device '{device}'; there are auto, cpu, cuda"
        raise UsageError(message)
    if method is not None and method not in methods:
        message = f"unknown method '{method}'; there are {', '.join(methods)}"
        raise UsageError(message)
    has: tuple[Device, ...] = tuple(defaults) if method is None else methods[method]
    if device != "auto" and device not in has:
        message = f"the method '{method}' runs on {', '.join(has)}, not on {device}"
        raise UsageError(message)
    if device == "cpu" or "cuda" not in has:
        problem = None if device == "cpu" else f"the method '{method}' is for it"
        return Choice(method or defaults["cpu"], "cpu", problem)
    from streamer.devices import cuda_problem

    problem = cuda_problem()
    if problem is None:
        cpu_method = method if method is not None and "cpu" in has else defaults["cpu"]
        return Choice(
            method or defaults["cuda"], "cuda", None, cpu_method,
            on_fallback if device == "auto" else None,
        )  # fmt: skip
    if device == "cuda" or "cpu" not in has:
        what = f"the method '{method}' needs a CUDA device" if method else "no CUDA device"
        message = f"{what}: {problem}"
        raise StreamerError(message)
    return Choice(method or defaults["cpu"], "cpu", problem)
