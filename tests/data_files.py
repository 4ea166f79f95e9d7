"""Finds the test data, and reads and writes it without the project's own code."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

ROOT = Path(__file__).parents[1]
DATA = ROOT / "tests" / "data"


def data_folders():
    """tests/data, and further real data if available."""
    folders = [DATA]
    for more in (os.environ.get("STREAMER_TEST_DATA"), ROOT.parent / "shared" / "data"):
        if more and Path(more).is_dir():
            folders.append(Path(more))
            break
    return folders


def data_files(pattern):
    """Every file that matches the pattern, by name; the first one of each name."""
    found = {}
    for folder in data_folders():
        for path in sorted(folder.glob(pattern)):
            found.setdefault(path.name, path)
    return list(found.values())


def data_file(pattern):
    """The first match; mark a test that may lack it with ``data(pattern)``."""
    return data_files(pattern)[0]


def read_plainly(path, limit=None):
    """[(name, sequence)] of a gzip-compressed FASTA or FASTQ file, at most ``limit`` records."""
    with gzip.open(path, "rt") as file:
        lines = file.read().splitlines()
    if lines and lines[0].startswith("@"):
        records = [
            (head[1:].split()[0], sequence)
            for head, sequence in zip(lines[0::4], lines[1::4], strict=True)
        ]
    else:
        pieces = []
        for line in lines:
            if line.startswith(">"):
                pieces.append((line[1:].split()[0], []))
            else:
                pieces[-1][1].append(line.strip())
        records = [(name, "".join(parts)) for name, parts in pieces]
    return records[:limit]


def write_fasta(path, records):
    path.write_text("".join(f">{name}\n{sequence}\n" for name, sequence in records))
    return str(path)
