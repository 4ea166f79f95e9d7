"""Estimates how long a command takes on the CPU and around a GPU, so that ``auto`` chooses well.

The rates are those of docs/performance, for one thread. A factor of two hardly matters: where both
devices take about as long, either choice is right.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal

from streamer.cli.choices import say
from streamer.device_choice import Cost

if TYPE_CHECKING:
    from streamer.batch.choice import Choice
    from streamer.cluster.connecting import Cluster
    from streamer.matching.spec import Device

_PACKED = 1e-9  # thread seconds to pack and send a base
_SUFFIXES = (".gz", ".bz2", ".xz", ".zst", ".bam", ".cram")
_PER_BYTE = 4  # the most bases in a byte of a compressed file

_MATCHED = (5e-9, 5e-8, 4e-7, 2e-6, 5e-6)
"""Seconds for each base, by distance."""

_FED = 2.5e-9  # a base of a file for a GPU, which gets one batch after the other

_SEARCHED = 1e-9  # a base and a word of a pattern: asm
_COMPARED = 2e-10  # a base and a pattern: hamming
_PRIMED = 6e-12  # two bases and a difference: primer
_ALIGNED = 8e-12  # a cell of the table: lcs
_WORD = 64


def bases_of_files(paths: Sequence[str]) -> int | None:
    """An upper estimate of the bases in files; None if one has no size."""
    from streamer.sequences.source import size_of_files

    total = 0
    for path in paths:
        size = size_of_files([path])
        if size is None:
            return None
        total += size * (_PER_BYTE if path.endswith(_SUFFIXES) else 1)
    return total


def matching(reads: Sequence[str], distance: int | None) -> Cost | None:
    """The cost of ``match`` and ``filter``; None if the reads have no size."""
    bases = bases_of_files(reads)
    if bases is None:
        return None
    return Cost(bases * _MATCHED[distance or 0], bases * _PACKED, bases * _FED)


def asm_base(patterns: Sequence[int], strands: int) -> float:
    """Thread seconds of ``asm`` for each base."""
    return strands * sum(-(-length // _WORD) for length in patterns) * _SEARCHED


def hamming_base(patterns: int, strands: int) -> float:
    """Thread seconds of ``hamming`` for each base."""
    return strands * patterns * _COMPARED


def primer(alpha: str, beta: str, k: int) -> Cost | None:
    """The cost of ``primer``, if seeds save nothing."""
    return _of_two(alpha, beta, k * _PRIMED)


def lcs(a: str, b: str) -> Cost | None:
    """The cost of ``lcs``, if the sequences are not similar."""
    return _of_two(a, b, _ALIGNED)


def of_text(text: str, seconds: float) -> Cost | None:
    """The cost of a search in a text, which takes so many thread seconds for each base."""
    bases = bases_of_files([text])
    return None if bases is None else Cost(bases * seconds, bases * _PACKED)


def _of_two(one: str, other: str, seconds: float) -> Cost | None:
    sizes = bases_of_files([one]), bases_of_files([other])
    if sizes[0] is None or sizes[1] is None:
        return None
    return Cost(sizes[0] * sizes[1] * seconds, sum(sizes) * _PACKED)  # type: ignore[arg-type]


@contextmanager
def search_run(
    methods: Mapping[str, tuple[Literal["cpu", "cuda"], ...]],
    default: str,
    method: str | None,
    device: Device,
    cost: Cost | None,
    threads: int,
    gpus: int = 1,
    cluster: str | None = None,
    *,
    quiet: bool,
) -> Iterator[tuple[Choice, Cluster | None]]:
    """Method and device as of ``streamer.batch.choice.choose``, and the cluster at an address.

    Reports what the cluster has, that kernels are compiled, and a later fallback to the CPU.
    """
    if cluster is not None:
        from streamer.cluster.connecting import connected

        with connected(cluster, threads) as where:
            choice = where.choose(methods, default, method, device)
            if not quiet:
                say(where.line())
            yield choice, where
        return
    from streamer.batch.choice import choose
    from trie.cpu.compiling import compile_notice

    with compile_notice(quiet=quiet):
        yield choose(methods, default, method, device, say, cost, threads, gpus), None


def say_where(choice: Choice, device: Device, quiet: bool) -> None:
    """Report what ``--device auto`` has chosen."""
    if device == "auto" and not quiet:
        say(choice.line())
