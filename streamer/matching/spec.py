"""The description of matching for the command line, the daemon and Python."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, get_args

from trie.strands import Strands

Mode = Literal["frozen", "grow"]
Semantics = Literal["levenshtein", "ltb"]
TargetBy = Literal["record", "file"]
Device = Literal["auto", "cpu", "cuda"]
MODES: tuple[Mode, ...] = get_args(Mode)
DEVICES: tuple[Device, ...] = get_args(Device)
Kernel = Literal[
    "auto", "index", "walk", "shuffle", "naive", "buckets",
    "lanes", "pieces", "sliced", "ltb-naive", "ltb-efficient", "ltb-queue",
]  # fmt: skip

KERNELS: dict[str, tuple[Kernel, ...]] = {
    "exact": ("auto", "index", "walk", "shuffle", "naive", "buckets"),
    "levenshtein": ("auto", "pieces", "lanes"),
    "ltb": ("auto", "sliced", "ltb-naive", "ltb-efficient", "ltb-queue"),
}
"""The kernels of exact matching and of each distance semantics."""

CUDA_KERNELS = ("shuffle", "naive", "buckets", "ltb-naive", "ltb-efficient", "ltb-queue")

DEFAULT_CHUNK = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class MatchSpec:
    """A match as users request it; ``of`` fills in defaults that depend on each other.

    sources: the files of the dictionary, or folders and patterns of them. targets: a table that
    names their targets, or empty. target_by: what is a target without it. seed_bases: the windows
    that lie wholly inside the first ``seed_bases`` symbols of the stream are added before the
    stream is matched. mode: ``grow`` adds every mismatched k-mer immediately. max_kmers: a batch's
    k-mers, seeds or not, are added only if the dictionary held fewer than this before the batch;
    0: always.

    exact: report the events of exact matching. counted: also report which k-mer each window
    matches (``target_counts.numbers_of``). distance: also report k-mers within that many edits, by
    ``semantics``; None for exact matching alone. kernel: how to compute; results are equal. A
    kernel of exact matching leaves that of the distance at ``auto``, and vice versa.

    chunk: symbols per chunk. threads: CPU threads, 0 for every usable core. track_tree: maintain
    the Hybrid Tree Bitmap of a growing dictionary even if no depths are requested.

    device: where to match; a StreamMatcher needs ``cpu`` or ``cuda`` (``choose_device``). On
    CUDA: ``streams`` on each of the devices with the numbers ``cards`` (none: the first device),
    within ``device_bytes`` of their memory (0: nearly all that is free).
    """

    k: int
    sources: tuple[str, ...] = ()
    targets: str = ""
    target_by: TargetBy = "record"
    seed_bases: int = 0
    mode: Mode = "frozen"
    max_kmers: int = 0
    strands: Strands = "canonical"
    exact: bool = True
    counted: bool = False
    distance: int | None = None
    semantics: Semantics = "levenshtein"
    kernel: Kernel = "auto"
    chunk: int = DEFAULT_CHUNK
    threads: int = 0
    track_tree: bool = False
    device: Device = "cpu"
    streams: int = 2
    cards: tuple[int, ...] = ()
    device_bytes: int = 0

    @classmethod
    def of(cls, **asked: Any) -> MatchSpec:
        """Create a spec with a default for every option that is omitted or None.

        The dictionary is frozen if it has sources. k-mers are canonical; with a distance both
        strands count, with the semantics ``ltb`` the forward strand.
        """
        asked = {name: value for name, value in asked.items() if value is not None}
        asked.setdefault("mode", "frozen" if asked.get("sources") else "grow")
        near = "forward" if asked.get("semantics") == "ltb" else "both"
        asked.setdefault("strands", "canonical" if asked.get("distance") is None else near)
        return cls(**asked)

    @property
    def grows(self) -> bool:
        """Whether mismatched k-mers are added."""
        return self.mode == "grow"

    @property
    def changes(self) -> bool:
        """Whether any k-mers are added, even if only seeds."""
        return self.grows or self.seed_bases > 0

    @property
    def near(self) -> bool:
        """Whether k-mers within a distance are wanted."""
        return self.distance is not None

    @property
    def kernels(self) -> tuple[Kernel, ...]:
        """The kernels to choose from."""
        exact = KERNELS["exact"] if self.exact else ()
        near = KERNELS[self.semantics] if self.near else ()
        return tuple(dict.fromkeys(exact + near))

    @property
    def exact_kernel(self) -> Kernel:
        """The kernel of exact matching."""
        return self.kernel if self.kernel in KERNELS["exact"] else "auto"

    @property
    def uses_snapshot(self) -> bool:
        """Whether that kernel matches against the snapshot, even while the dictionary grows."""
        return self.exact_kernel not in ("auto", "index")

    @property
    def near_kernel(self) -> Kernel:
        """The kernel of matching within a distance."""
        return self.kernel if self.kernel in KERNELS[self.semantics] else "auto"

    @property
    def cuda_kernel(self) -> Kernel | None:
        """The kernel if it needs a CUDA device."""
        return self.kernel if self.kernel in CUDA_KERNELS else None

    def faults(self) -> Iterator[str]:
        """Yield the names of options that conflict with others.

        kernel: not among ``kernels``. distance: not below k. strands: canonical with a distance.
        device: the CPU with a CUDA kernel. chunk: shorter than k.
        """
        if self.kernel not in self.kernels:
            yield "kernel"
        if self.near and (self.distance or 0) >= self.k:
            yield "distance"
        if self.near and self.strands == "canonical":
            yield "strands"
        if self.device == "cpu" and self.cuda_kernel:
            yield "device"
        if self.chunk < self.k:
            yield "chunk"
