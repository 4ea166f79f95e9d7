"""The index of a genome: building, size, opening and matching, beside sshash, kraken2 and deacon.

Any FASTA file can take the place of the model genome. All answers must equal those of a table that
grew by the same k-mers, and target sets those of the records.

The model genome has what makes real ones hard: interspersed repeats of several families, 1 to 25 %
apart, satellites in tandem, segmental duplications, runs of N, and few CG.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks import peers
from benchmarks.file_peers import found_peers
from benchmarks.frozen_reads import LENGTHS, reads_of
from benchmarks.host_removers import deacon_peer
from benchmarks.inputs import LETTERS, Codes
from benchmarks.processes import measured, streamer_command
from benchmarks.read_files import write_reads
from benchmarks.suite import Row, Sheet
from benchmarks.timing import least_seconds
from streamer.dictionary.index import Index
from streamer.matching.events import Events
from streamer.matching.record_runs import runs_in_text
from streamer.sequences.files import read_pieces
from streamer.sequences.read_batch import ReadBatch
from trie.codes import GAP, reverse_complement
from trie.cpu.threads import usable_cores
from trie.index.kmer_index import KmerIndex
from trie.index.reference_text import gap_codes
from trie.windows import window_codes

BLOCK = 1 << 22
FAMILIES = ((300, 0.11), (6_000, 0.17), (1_500, 0.05), (900, 0.08))
"""Of interspersed repeats: bases of the consensus, share of the genome."""

SATELLITES, DUPLICATED, UNKNOWN = 0.04, 0.04, 0.01
"""Shares of the genome."""

MONOMER, MONOMERS = 171, 12
DUPLICATION = 50_000
KS = (31, 21)
RECORDS = 21  # of the model genome, each a target
PEER_BASES = 1 << 27
"""The most bases of a genome that peers index: they take minutes and gigabytes for more."""


def model_genome(size: int, seed: int = 1) -> Iterator[Codes]:
    """Yield base codes in blocks, the same for every size up to its end."""
    rng = np.random.default_rng(seed)
    families = [rng.integers(0, 4, length).astype(np.uint8) for length, _ in FAMILIES]
    monomer = rng.integers(0, 4, MONOMER).astype(np.uint8)
    unit = np.concatenate([_diverged(rng, monomer, 0.3) for _ in range(MONOMERS)])
    earlier: list[Codes] = []
    for start in range(0, size, BLOCK):
        block = rng.integers(0, 4, BLOCK).astype(np.uint8)
        # most CG have become TG or CA
        islands = np.flatnonzero((block[:-1] == 1) & (block[1:] == 2))
        islands = islands[rng.random(islands.size) < 0.75]
        block[islands[::2]], block[islands[1::2] + 1] = 3, 0
        for family, (length, share) in zip(families, FAMILIES, strict=True):
            for _ in range(int(1.5 * share * BLOCK / length)):
                # most copies lack their beginning
                copy = family[int(length * rng.random() ** 2 * 0.9) :]
                _put(rng, block, _diverged(rng, copy, rng.uniform(0.01, 0.25)))
        if rng.random() < SATELLITES * 10:
            tandem = np.tile(unit, BLOCK // 10 // unit.size)
            _put(rng, block, _diverged(rng, tandem, 0.01))
        if earlier:
            for _ in range(int(DUPLICATED * BLOCK / DUPLICATION)):
                source = earlier[int(rng.integers(len(earlier)))]
                at = int(rng.integers(BLOCK - DUPLICATION))
                _put(rng, block, _diverged(rng, source[at : at + DUPLICATION], 0.02))
        if len(earlier) < 16:
            earlier.append(block.copy())
        if rng.random() < UNKNOWN * 10:
            at = int(rng.integers(BLOCK - BLOCK // 10))
            block[at : at + BLOCK // 10] = GAP
        yield block[: size - start]


def _diverged(rng: np.random.Generator, codes: Codes, share: float) -> Codes:
    copy = codes.copy()
    at = np.flatnonzero(rng.random(copy.size) < share)
    copy[at] = (copy[at] + rng.integers(1, 4, at.size)) & 3
    return copy


def _put(rng: np.random.Generator, block: Codes, copy: Codes) -> None:
    at = int(rng.integers(block.size - copy.size))
    block[at : at + copy.size] = copy if rng.random() < 0.5 else reverse_complement(copy)


def write_model(path: Path, size: int) -> None:
    """The model genome as FASTA, of RECORDS records."""
    letters = np.append(LETTERS, np.uint8(ord("N")))
    each, at, record = -(-size // RECORDS), 0, 0
    with path.open("wb") as file:
        for block in model_genome(size):
            while block.size:
                if at == record * each:
                    record += 1
                    file.write(b"\n>chromosome%d\n" % record)
                some = block[: record * each - at]
                file.write(letters[some].tobytes())
                at, block = at + some.size, block[some.size :]
        file.write(b"\n")


def sample(index: Index, pieces: int = 1_000, size: int = 32_000) -> Codes:
    """Bases of the whole text, without those beside a gap code."""
    rng = np.random.default_rng(3)
    places = rng.integers(0, max(index.size - size, 1), pieces)
    found = [gap_codes(index.reference, at, min(at + size, index.size)) for at in places.tolist()]
    bases = np.concatenate(found)
    return bases[bases != GAP]


def unequal(index: Index, fasta: Sequence[str], batch: ReadBatch) -> int:
    """How many windows are answered otherwise than by a growing table and the records.

    The k-mers that the reads may have are taken from the records as reads are.
    """
    k, canonical = index.k, index.strands != "forward"
    asked, first = window_codes(batch.bases, batch.offsets, k, canonical=canonical)
    near = np.zeros(1 << 28, np.bool_)
    near[_hashed(asked)] = True
    codes, owners, records = [np.empty(0, np.uint64)], [np.empty(0, np.int32)], 0
    for path in fasta:
        before = records
        for piece in read_pieces(path, k - 1, size=1 << 22):
            bases, offsets = piece.reads.bases, piece.reads.offsets
            found, at = window_codes(bases, offsets, k, canonical=canonical)
            kept = near[_hashed(found)]
            codes.append(found[kept])
            record = np.searchsorted(offsets, at[kept], side="right") - 1
            owners.append((before + piece.first + record).astype(np.int32))
            records = before + piece.first + len(piece.reads)
    del near
    pairs = np.unique(
        np.rec.fromarrays([np.concatenate(codes), index.owners[np.concatenate(owners)]])
    )
    known, target = pairs["f0"], pairs["f1"].astype(np.uint64)
    table = KmerIndex(k, expected=known.size)
    table.add(np.ascontiguousarray(known))
    runs: list[NDArray[np.int64]] = []
    answers = Events(batch.bases.size, index.text.match(batch.bases, batch.offsets, runs=runs))
    of_table = Events.of(table.match(batch.bases, batch.offsets, canonical=canonical))
    wrong = int((answers.codes != of_table.codes).sum())
    # each set of targets by their number and two sums
    kinds = np.flatnonzero(np.append(True, known[1:] != known[:-1]))
    sums = np.stack([np.add.reduceat(v, kinds) for v in _marks(target)])
    place = np.minimum(np.searchsorted(known[kinds], asked), kinds.size - 1)
    sets = index.targets
    of_sets = np.stack([np.add.reduceat(v, sets.starts[:-1]) for v in _marks(sets.members)])
    for begin, stop, *_, number in runs_in_text(index, runs).tolist():
        windows = slice(*np.searchsorted(first, [begin, stop]))
        wrong += int((sums[:, place[windows]] != of_sets[:, [number]]).any(axis=0).sum())
    return wrong


def _hashed(codes: NDArray[np.uint64]) -> NDArray[np.uint64]:
    return codes * np.uint64(0x9E3779B97F4A7C15) >> np.uint64(36)


def _marks(targets: NDArray[Any]) -> list[NDArray[np.uint64]]:
    numbers = targets.astype(np.uint64)
    return [np.ones_like(numbers), numbers, numbers * numbers * numbers]


def unique_texts(index: Index, most: int) -> list[str]:
    """The first ``most`` symbols cut so that no k-mer occurs twice, the input of sshash."""
    size = min(most, index.size)
    repeats = index.shares.repeats.astype(np.int64)
    repeats = repeats[:, repeats[0] < size]
    k = index.k
    begins, stops = np.append(0, repeats[1]), np.append(repeats[0] + k - 1, size)
    whole = LETTERS[np.minimum(gap_codes(index.reference, 0, size), 3)]
    gaps = index.reference.gaps.reshape(-1, 2)
    for begin, stop in gaps[gaps[:, 0] < size].tolist():
        whole[begin : min(stop, size)] = ord("N")
    text = whole.tobytes().decode()
    parts = (text[a:b] for a, b in zip(begins.tolist(), stops.tolist(), strict=True))
    return [piece for part in parts for piece in part.split("N") if len(piece) >= k]


def rows(
    fasta: Sequence[str],
    bases: int,
    ks: Sequence[int] = KS,
    total: int = 32_000_000,
    repeats: int = 3,
) -> Iterator[Row]:
    """Sizes in bytes a base, seconds of all cores, and windows a second of one thread."""
    with tempfile.TemporaryDirectory() as folder:
        fasta, saved = _given(fasta, bases, folder), str(Path(folder, "genome.idx"))
        for k in ks:
            built = measured(streamer_command("index", *fasta, "-k", k, "-o", saved, "--quiet"))
            index = Index.open(saved)
            row: Row = {
                "k": k, "bases": index.bases, "targets": len(index.names),
                "matching": index.text.memory_bytes() / index.bases,
                "file": Path(saved).stat().st_size / index.bases,
                **{f"build {name}": value for name, value in built.items()},
                "open ms": 1e3 * least_seconds(partial(Index.open, saved), repeats),
            }  # fmt: skip
            query = None
            if k == ks[0]:
                query = peers.sshash(unique_texts(index, PEER_BASES), k)
            text = sample(index)
            for length in LENGTHS:
                batch = reads_of(text, total, length, 2)
                windows = int(np.maximum(batch.lengths - k + 1, 0).sum())
                match = partial(index.text.match, batch.bases, batch.offsets)
                rate = windows / least_seconds(match, repeats)
                few = _first(batch, max(len(batch) // 8, 1))
                asked = int(np.maximum(few.lengths - k + 1, 0).sum())
                yield row | {
                    "bases a read": length, "windows/s": rate,
                    "equal": not unequal(index, fasta, few),
                    "x sshash": None if query is None else rate / (
                        asked / least_seconds(partial(_ask_all, query, few), 1, warm=False)
                    ),
                }  # fmt: skip


def _first(batch: ReadBatch, count: int) -> ReadBatch:
    offsets = batch.offsets[: count + 1]
    return ReadBatch(batch.names[:count], offsets, batch.bases[: offsets[-1]])


def _given(fasta: Sequence[str], bases: int, folder: str) -> list[str]:
    if fasta:
        return [*fasta]
    model = Path(folder, "genome.fa")
    write_model(model, bases)
    return [str(model)]


def commands(
    fasta: Sequence[str], bases: int, total: int, beside: Path | None = None, repeats: int = 2
) -> Iterator[Row]:
    """Whole commands with an index, and of peers with a database, for the same reads."""
    with tempfile.TemporaryDirectory() as folder:
        fasta, saved = _given(fasta, bases, folder), str(Path(folder, "genome.idx"))
        k = KS[0]
        measured(streamer_command("index", *fasta, "-k", k, "-o", saved, "--quiet"))
        index = Index.open(saved)
        text = sample(index)
        others = []
        if index.bases <= PEER_BASES and len(fasta) == 1:
            others = found_peers(Path(fasta[0]), k, 0, at=Path(folder))
            if beside is not None and all(peer.name != "deacon" for peer in others):
                others.append(deacon_peer(beside, Path(fasta[0]), usable_cores()))
        for suffix in ("fq", "fq.gz"):
            reads = Path(folder, f"reads.{suffix}")
            write_reads(reads, text, total, LENGTHS[0])
            options = [reads, "-d", saved, "--device", "cpu", "--quiet"]
            runs = {
                name: partial(measured, streamer_command(*command, *options))
                for name, command in (
                    ("match --report reads", ["match", "--report", "reads"]),
                    ("match --report targets", ["match", "--report", "targets"]),
                    ("filter --keep", ["filter", "--keep"]),
                )
            } | {peer.name: partial(peer.run, reads) for peer in others}
            best: dict[str, dict[str, float]] = {}
            for _ in range(repeats):
                for name, run in runs.items():
                    found = run()
                    if name not in best or found["seconds"] < best[name]["seconds"]:
                        best[name] = found
            for name, found in best.items():
                yield (
                    {"file": reads.name, "command": name}
                    | found
                    | {"bases/s": total / found["seconds"]}
                )
            reads.unlink()


def _ask_all(query: Any, batch: ReadBatch) -> None:
    """Ask for each read; sshash makes a Python object of every hit."""
    letters = LETTERS[batch.bases].tobytes()
    offsets = batch.offsets.tolist()
    for start, end in zip(offsets, offsets[1:], strict=False):
        query.query_sequence(letters[start:end])


def tables(
    device: str,
    bases: int,
    fasta: Sequence[str] = (),
    reads: int = 0,
    beside: Path | None = None,
) -> list[Sheet]:
    """Of the model genome, or of the files; reads: bases of the files for whole commands.

    beside: an environment with deacon.
    """
    title = ", ".join(Path(path).name for path in fasta) or "a model genome"
    return [
        Sheet(f"Index of {title}", rows, fasta, bases, section="index"),
        Sheet("Whole commands", commands, fasta, bases, reads, beside, section="commands"),
    ]
