"""The index of a genome: building, size, opening and matching, with sshash beside it.

The model genome has what makes real ones hard: interspersed repeats of several families, 1 to 25 %
apart, satellites in tandem, segmental duplications, runs of N, and few CG.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import peers
from benchmarks.exact import unique_pieces
from benchmarks.frozen_reads import LENGTHS, reads_of
from benchmarks.inputs import LETTERS, Codes
from benchmarks.suite import Row, Sheet
from benchmarks.timing import least_seconds
from streamer.dictionary.index import Index
from streamer.sequences.read_batch import ReadBatch
from trie.codes import GAP, reverse_complement

BLOCK = 1 << 22
FAMILIES = ((300, 0.11), (6_000, 0.17), (1_500, 0.05), (900, 0.08))
"""Of interspersed repeats: bases of the consensus, share of the genome."""

SATELLITES, DUPLICATED, UNKNOWN = 0.04, 0.04, 0.01
"""Shares of the genome."""

MONOMER, MONOMERS = 171, 12
DUPLICATION = 50_000
KS = (31, 21)


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


def rows(
    size: int, ks: Sequence[int] = KS, total: int = 32_000_000, repeats: int = 3
) -> Iterator[Row]:
    """Sizes in bytes a base, seconds of one core unless named, and windows a second and thread."""
    letters = np.append(LETTERS, np.uint8(ord("N")))
    with tempfile.TemporaryDirectory() as folder:
        fasta, saved = Path(folder, "genome.fa"), Path(folder, "genome.idx")
        sample = []
        with fasta.open("wb") as file:
            file.write(b">genome\n")
            for number, block in enumerate(model_genome(size)):
                file.write(letters[block].tobytes() + b"\n")
                if number < 8:
                    sample.append(block[block != GAP])
        for k in ks:
            wall, cpu = time.perf_counter(), time.process_time()
            index = Index.from_files([str(fasta)], k, "canonical", checksums=False)
            _ = index.text
            wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
            memory = index.text.memory_bytes() / size
            saving = time.process_time()
            index.save(str(saved))
            saving = time.process_time() - saving
            opening = least_seconds(lambda: Index.open(str(saved)), repeats)
            opened = Index.open(str(saved))
            query = None
            if k == ks[0]:
                query = peers.sshash(unique_pieces(sample[0], k), k)
            for length in LENGTHS:
                batch = reads_of(np.concatenate(sample), total, length, 2)
                windows = int(np.maximum(batch.lengths - k + 1, 0).sum())
                match = partial(opened.text.match, batch.bases, batch.offsets)
                yield {
                    "k": k, "bases": size, "bases a read": length,
                    "bytes/base": memory, "file": saved.stat().st_size / size,
                    "build s": wall, "build CPU s": cpu, "save CPU s": saving, "open s": opening,
                    "windows/s": windows / least_seconds(match, repeats),
                    "sshash, 4 M bases": None if query is None else windows / least_seconds(
                        partial(_ask_all, query, batch), 1, warm=False
                    ),
                }  # fmt: skip


def _ask_all(query: Any, batch: ReadBatch) -> None:
    """Ask for each read; sshash makes a Python object of every hit."""
    letters = LETTERS[batch.bases].tobytes()
    offsets = batch.offsets.tolist()
    for start, end in zip(offsets, offsets[1:], strict=False):
        query.query_sequence(letters[start:end])


def tables(device: str, bases: int) -> list[Sheet]:
    """The only table."""
    return [Sheet("Index of a model genome", rows, bases)]
