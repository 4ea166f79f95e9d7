"""Estimates how long a command takes on the CPU and around a GPU, so that ``auto`` chooses well.

The constants are seconds on the machine of docs/performance, an NVIDIA H200 with 16 cores, fitted
to ``scripts/bench commands --device both``; ``streamer.device_choice.Rates`` scales them to this
machine. Sizes come from the beginning of each file.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Literal

from streamer.cli.choices import say
from streamer.device_choice import Cost, Estimate
from trie.cpu.compiling import compile_notice

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from streamer.batch.choice import Choice
    from streamer.cluster.connecting import Cluster
    from streamer.matching.spec import Device, MatchSpec

_SAMPLE = 1 << 18  # bytes of a file
_STRETCH = 4  # bytes of text in a compressed byte, where no sample can be taken
_BAM = 0.5  # bases in a byte of BAM's text
_SIDE_BY_SIDE = 1 << 26  # larger files are decompressed one after the other

_PARSED = 0.8e-9  # thread seconds for a byte of text
_INFLATED = 1.2e-9  # a byte of text from one gzip stream
_INFLATED_BESIDE = 1.9e-9  # ... beside threads that search within a distance
_INDEXED = 50e-9  # thread seconds for a base of the dictionary
_INDEXED_IN_TURN = 20e-9, 16e6  # for each of the first bases of it
_BEGUN = 0.1  # threads or processes, and the rows: exact, near
_PACKED = 1e-9  # thread seconds to pack and send a base
_FED = 1.5e-9  # a base of a file for a GPU, which gets one batch after the other

_MATCHED = 4e-9  # thread seconds for a base: exact
_GROWN = 40e-9  # a base
_GROWN_BEGUN = 0.7  # the buffers on a GPU
_GROWN_THERE = 16e-9
_LTB_ROW = 58e-9  # a base: its row
_NEAR = 14e-9  # thread seconds for a base, whatever the distance
_CYCLE = 0.35e-9  # of ``expected_cost``
_PATTERN = 0.3e-6  # a pattern: lists and tables
_PATTERN_THERE = 0.15e-6
_GPU_THREADS = 1000.0  # CPU threads that a GPU is worth

_TEXT_READ = 1.0e-9  # a base of FASTA: asm, hamming
_SEARCHED = 1.0e-10  # thread seconds for a base and a word of a pattern: asm
_HAMMED = 2.2e-9  # a base: hamming, and a pattern of it
_COMPARED = 2.3e-11
_WORD = 64
_PRIMED = 7.5e-11  # thread seconds for two bases: primer, and for each difference
_PRIMED_K = 3e-13
_PRIMED_IN_TURN = 1.6e-11
_PRIMED_THERE = 5e-13
_PRIMER_BEGUN = 0.2  # on a GPU
_ALIGNED = 4e-12  # thread seconds for a cell of the table: lcs
_ALIGNED_THERE = 1.05e-14
_DIFFERENCE = 0.95e-9  # a cell along the diagonals of similar sequences
_SAME = 4e-9  # ... and a base of them
_WHOLE = 1.8  # a subsequence against its length
_PER_CHANGE = 4 / 3  # differences for a change


@dataclass(frozen=True, slots=True)
class Contents:
    """Estimated bases and records of files, bytes of text, and those of one gzip stream."""

    bases: float = 0.0
    records: float = 0.0
    text: float = 0.0
    stream: float = 0.0

    def windows(self, k: int) -> float:
        """The windows of all records."""
        return max(self.bases - (k - 1) * self.records, 0.0)


_ENDLESS: Final = Contents(bases=1e9, records=6e6, text=2.2e9)


def contents(paths: Sequence[str]) -> Contents | None:
    """An estimate from the beginning of each file; None if one has no size."""
    from streamer.sequences.decompression import compression_at
    from streamer.sequences.source import size_of_files

    bases = records = text = longest = stream = 0.0
    for path in paths:
        size = size_of_files([path])
        if size is None:
            return None
        with open(path, "rb") as file:
            start = file.read(_SAMPLE)
        packed = compression_at(start)
        sample = start if packed is None else _inflated(packed, start)
        length = size if packed is None else size * (len(sample) / len(start) or _STRETCH)
        share, each = _measured(sample, path)
        bases, records, text = bases + share * length, records + each * length, text + length
        if packed is not None and start[12:14] != b"BC":
            longest = max(longest, length)
            stream += length if size > _SIDE_BY_SIDE else 0
    return Contents(bases, records, text, max(stream, longest))


def _inflated(packed: str, start: bytes) -> bytes:
    """Decompress the beginning of a file; empty if that fails."""
    text = b""
    with suppress(zlib.error):
        while packed == "gz" and start:
            stream = zlib.decompressobj(31)
            text += stream.decompress(start)
            start = stream.unused_data
    return text


def _measured(sample: bytes, path: str) -> tuple[float, float]:
    """The bases and records in a byte of such a text."""
    from trie.index.index_file import MAGIC  # late, as it imports numpy

    if sample.startswith((b"BAM\1", b"CRAM")) or not sample:
        return (_BAM if path.endswith((".bam", ".cram", ".gz")) else 1.0), 0.0
    if sample.startswith(MAGIC):
        return 0.8, 0.0
    lines = sample.split(b"\n")
    if sample.startswith(b">"):
        letters = sum(len(line) for line in lines if not line.startswith(b">"))
        return letters / len(sample), sample.count(b">") / len(sample)
    if sample.startswith(b"@") and lines[0][3:4] != b"\t":
        reads = lines[1::4]
    else:
        reads = [line.split(b"\t")[9] for line in lines if line.count(b"\t") > 9]
    whole = reads[:-1] or reads  # the last one is cut
    total = len(sample) * len(whole) / max(len(reads), 1)
    return sum(map(len, whole)) / max(total, 1), len(whole) / max(total, 1)


def bases_of_files(paths: Sequence[str]) -> int | None:
    """An estimate of the bases in files; None if one has no size."""
    read = contents(paths)
    return None if read is None else int(read.bases)


def matching(reads: Sequence[str], spec: MatchSpec) -> Cost | None:
    """The cost of ``match`` and ``filter``, if few reads match; None if the dictionary has no size.

    Reads without a size are taken for _ENDLESS.
    """
    read, known = contents(reads), contents(spec.sources)
    if known is None:
        return None
    if read is None:
        return replace(_matching(_ENDLESS, known, spec), of="1 G bases")
    return _matching(read, known, spec)


def _matching(read: Contents, known: Contents, spec: MatchSpec) -> Cost:
    bases, stream = read.bases, read.stream * _INFLATED
    begun = min(known.bases, _INDEXED_IN_TURN[1]) * _INDEXED_IN_TURN[0]
    indexed = known.bases * _INDEXED
    cpu, host = indexed + read.text * _PARSED, indexed + bases * _PACKED
    fed = begun + max(stream, bases * _FED)
    if not spec.near:
        if spec.changes:
            grown, there = bases * _GROWN, _GROWN_BEGUN + bases * _GROWN_THERE
            return Cost("grow", cpu, begun + stream + grown, host, begun + max(stream, there))
        return Cost("exact", cpu + bases * _MATCHED, begun + _BEGUN + stream, host, fed + _BEGUN)
    assert spec.distance is not None
    if spec.semantics == "ltb":
        rows = begun + stream + bases * _LTB_ROW
        return Cost("ltb", cpu, rows, host, rows)
    from trie.levenshtein.piece_index import choose, expected_cost

    patterns = max(int(min(known.windows(spec.k), 4.0**spec.k)), 1)
    patterns *= 1 + (spec.strands == "both")
    scheme = choose(patterns, spec.k, spec.distance)
    looked_up = bases * expected_cost(scheme, patterns) * _CYCLE
    return Cost(
        "near",
        cpu + looked_up + bases * _NEAR,
        begun + _BEGUN + read.stream * _INFLATED_BESIDE + patterns * _PATTERN,
        host,
        fed + _BEGUN + looked_up / _GPU_THREADS + patterns * _PATTERN_THERE,
    )


def asm_base(patterns: Sequence[int], strands: int) -> float:
    """Thread seconds of ``asm`` for each base."""
    return strands * sum(-(-length // _WORD) for length in patterns) * _SEARCHED


def asm(text: str, base: float) -> Cost | None:
    """The cost of ``asm``, which takes so many thread seconds for each base."""
    texts = contents([text])
    if texts is None:
        return None
    read, work = _read(texts), texts.bases * base
    return Cost("asm", work, read, texts.bases * _PACKED, read + work / _GPU_THREADS)


def hamming_base(patterns: int, strands: int) -> float:
    """Seconds of ``hamming`` for each base."""
    return strands * patterns * _COMPARED


def hamming(text: str, base: float) -> Cost | None:
    """The cost of ``hamming``, which takes so many seconds for each base."""
    texts = contents([text])
    if texts is None:
        return None
    read, work = _read(texts), texts.bases * base
    cpu = max(read, texts.bases * _HAMMED) + work
    return Cost("hamming", 0.0, cpu, texts.bases * _PACKED, read + work / _GPU_THREADS)


def _read(texts: Contents) -> float:
    return max(texts.bases * _TEXT_READ, texts.stream * _INFLATED)


def primer(alpha: str, beta: str, k: int) -> Cost | None:
    """The cost of ``primer`` for unrelated sequences."""
    first, other = contents([alpha]), contents([beta])
    if first is None or other is None:
        return None
    pairs = first.bases * other.bases
    return Cost(
        "primer",
        pairs * (_PRIMED + k * _PRIMED_K),
        pairs * _PRIMED_IN_TURN,
        other.bases * _PACKED,
        _PRIMER_BEGUN + pairs * _PRIMED_THERE,
    )


def lcs(first: NDArray[np.uint8], other: NDArray[np.uint8], *, whole: bool) -> Cost:
    """The cost of ``lcs`` of base codes, which follows the share of 16-mers that both have.

    whole: the subsequence is wanted, not only its length.
    """
    factor = _WHOLE if whole else 1.0
    unlike = aligned(factor * first.size * other.size)
    shared = _shared(first, other)
    if shared <= _CHANCE:
        return unlike
    differences = (1 - shared ** (1 / _MER)) * _PER_CHANGE * min(first.size, other.size)
    differences += abs(first.size - other.size)
    near = factor * (differences**2 * _DIFFERENCE + max(first.size, other.size) * _SAME)
    if near > unlike.cpu / _MANY_THREADS:
        return unlike
    return Cost("lcs", 0.0, near, 0.0, min(unlike.host_in_turn, near))


def aligned(cells: float) -> Cost:
    """The cost of ``lcs`` of unrelated sequences with so many pairs of symbols."""
    return Cost("lcs", cells * _ALIGNED, 0.0, 0.0, cells * _ALIGNED_THERE)


_MANY_THREADS = 16  # with fewer, the table pays later
_MER = 16
_CHANCE = 0.01  # share of 16-mers that unrelated genomes may have in common
_ONE_IN = 1 << 22  # of 2**32: 16-mers that are compared, one in 1024


def _shared(first: NDArray[np.uint8], other: NDArray[np.uint8]) -> float:
    """The share of 16-mers of the shorter sequence that the longer one has, from a sample."""
    import numpy as np  # late: building a package needs help texts without it

    some, others = _sampled(first), _sampled(other)
    least = min(some.size, others.size)
    return np.intersect1d(some, others, assume_unique=True).size / least if least else 0.0


def _sampled(codes: NDArray[np.uint8]) -> NDArray[np.uint32]:
    """Some of the 16-mers, by their value."""
    import numpy as np

    mers = codes.astype(np.uint32)
    for step in (1, 2, 4, 8):
        mers = (mers[:-step] << np.uint32(2 * step)) + mers[step:]
    return np.unique(mers[mers * np.uint32(2654435761) < np.uint32(_ONE_IN)])


@contextmanager
def search_run(
    methods: Mapping[str, tuple[Literal["cpu", "cuda"], ...]],
    default: str,
    method: str | None,
    device: Device,
    cost: Estimate,
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

    with compile_notice(quiet=quiet):
        yield choose(methods, default, method, device, say, cost, threads, gpus), None


def say_where(choice: Choice, device: Device, quiet: bool) -> None:
    """Report what ``--device auto`` has chosen."""
    if device == "auto" and not quiet:
        say(choice.line())
