"""The frame of all searches: choose method and device, and run each GPU's engine or the CPU's.

A search has a lane (``SearchLane``) for each engine, which ``trie.cpu.threads.in_lanes`` gives its
pieces of text in turn. A lane runs pieces again in smaller parts if GPU memory is short, and on the
CPU once a GPU has failed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Generic, Literal, TypeVar

from streamer import device_choice
from streamer.device_choice import Estimate, GpuOrCpu, OnFallback, log_fallback, shown, usable_cards
from streamer.errors import StreamerError, UsageError, check_choice

Device = Literal["cpu", "cuda"]
Engine = TypeVar("Engine")
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class CardUse:
    """The GPU of one lane, among those that a search uses.

    gpu: runs its parts; shared by the lanes of a search, so if one GPU fails, all are given up.
    alone: the search has no other lane. sharing: its lanes on this GPU.
    """

    gpu: GpuOrCpu
    number: int = 0
    alone: bool = True
    sharing: int = 1


@dataclass(frozen=True, slots=True)
class Choice:
    """A method's name, its device, and why that is not CUDA if it could have been.

    cpu_method: the CPU's method if the GPU fails, None for the same one. on_fallback: called with a
    line that reports it; if None, a GPU failure raises StreamerError. cards: the GPUs' numbers.
    seconds: as of ``device_choice.judged``.
    """

    method: str
    device: Device
    problem: str | None = None
    cpu_method: str | None = None
    on_fallback: OnFallback | None = None
    cards: tuple[int, ...] = (0,)
    seconds: str = ""

    def line(self) -> str:
        """Return one line for the user: where it runs."""
        return shown(self.device, self.problem, "running", len(self.cards), self.seconds)

    def card_uses(self, most: int = 0, sharing: int = 1) -> list[CardUse]:
        """One per lane of a search, ``sharing`` on each of up to ``most`` GPUs (0: any number).

        On the CPU just one. With several GPUs, neighbours in the list are on different ones.
        """
        gpu = GpuOrCpu(self.on_fallback, given_up=self.device == "cpu")
        if gpu.given_up:
            return [CardUse(gpu)]
        numbers = self.cards[: most or None] * sharing
        return [CardUse(gpu, number, len(numbers) == 1, sharing) for number in numbers]

    def on_cpu(self) -> Choice:
        """Return the choice for the case that the GPU fails."""
        return Choice(self.cpu_method or self.method, "cpu")


def choose(
    methods: Mapping[str, tuple[Device, ...]],
    default: str,
    method: str | None,
    device: str,
    on_fallback: OnFallback = log_fallback,
    cost: Estimate | None = None,
    threads: int = 0,
    gpus: int = 0,
) -> Choice:
    """Choose method and device for a request: ``device`` auto, cpu or cuda, ``method`` or None.

    ``methods`` gives the devices of each method; the ``default`` runs on both. ``auto`` takes CUDA
    if the method supports it and it is usable; if the GPU fails later, the CPU takes over and
    ``on_fallback`` gets one line. With an ``cost``, it takes the device that is faster with so
    many threads. gpus: the most GPUs to use, 0 for all. Raises UsageError for an unknown method or
    one that the device lacks; StreamerError, with the reason, if CUDA is needed but not usable.
    """
    check_choice("device", device, ("auto", "cpu", "cuda"))
    if method is not None:
        check_choice("method", method, methods)
    name = default if method is None else method
    has = methods[name]
    if device != "auto" and device not in has:
        raise UsageError(f"the method '{method}' runs on {', '.join(has)}, not on {device}")
    if device == "cpu" or "cuda" not in has:
        problem = None if device == "cpu" else f"the method '{method}' is for it"
        return Choice(name, "cpu", problem)
    ask = device == "auto" and "cpu" in has
    problem, seconds = device_choice.judged(cost if ask else None, threads)
    if problem is None:
        cpu_method = name if "cpu" in has else default
        fallback = on_fallback if device == "auto" else None
        cards = tuple(usable_cards(gpus))
        return Choice(name, "cuda", None, cpu_method, fallback, cards, seconds)
    if device == "cuda" or "cpu" not in has:
        what = f"the method '{method}' needs a CUDA device" if method else "no CUDA device"
        raise StreamerError(f"{what}: {problem}")
    return Choice(name, "cpu", problem)


class SearchLane(Generic[Engine]):
    """One lane of a search: the engine of a choice, or of the CPU once a GPU has failed.

    A search defines how to make it, and how to reduce its work if GPU memory is short. made: the
    engine; setting it to None recreates it on next use.
    """

    def __init__(self, choice: Choice, use: CardUse) -> None:
        self.choice = choice
        self.made: Engine | None = None
        self._use = use
        self.run(lambda: self.engine)
        if self.choice.device == "cuda" and not use.alone:
            from gpu.card.cuda_errors import note_devices_in_use

            note_devices_in_use((use.number,))

    @property
    def engine(self) -> Engine:
        """Return the engine, created if necessary."""
        if self.made is None:
            self.made = self.make(self.choice)
        return self.made

    def run(self, work: Callable[[], Result]) -> Result:
        """Return the result of ``work``, which is called again if the GPU fails."""
        return self._use.gpu.run(
            partial(self._on_card, work),
            partial(self._on_cpu, work),
            partial(self._on_card, self.smaller),
        )

    def _on_card(self, work: Callable[[], Result]) -> Result:
        from gpu.card.device import card_active

        with card_active(self._use.number, alone=self._use.alone):
            return work()

    def _on_cpu(self, work: Callable[[], Result]) -> Result:
        if self.choice.device == "cuda":
            self.choice = self.choice.on_cpu()
            self.made = None
            self.fell_back()
        return work()

    def make(self, choice: Choice) -> Engine:
        """Create the engine of a choice."""
        raise NotImplementedError

    def smaller(self) -> bool:
        """Free GPU memory and use smaller pieces; return False if they cannot be smaller."""
        raise NotImplementedError

    def fell_back(self) -> None:
        """Called when the CPU has taken over."""
