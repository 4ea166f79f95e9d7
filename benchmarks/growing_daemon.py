"""The memory of a daemon with a growing dictionary, by its number of k-mers."""

from __future__ import annotations

import re
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.inputs import READ, batch_of, cut, random_codes
from benchmarks.serving import SECONDS, serving
from benchmarks.suite import Row
from streamer.client import Control, Producer

SHARES = (0.05, 0.2, 0.8, 1.0)
# with a distance, and with both strands, growing takes long
NEAR_SHARES = SHARES[:2]
_BATCH = 1_000_000
_LOOK_SECONDS, _LOOKS = 0.2, 10


def growing(kmers: int) -> Iterator[Row]:
    """Rows of daemons on the CPU with random reads, for shares of about ``kmers`` new k-mers.

    Memory is resident memory, including that of the program; bytes a k-mer exclude the program.
    """
    for k, strands, distance, semantics, shares in (
        (21, "canonical", 0, "levenshtein", SHARES),
        (31, "canonical", 0, "levenshtein", SHARES),
        (21, "both", 0, "levenshtein", NEAR_SHARES),
        (21, "both", 1, "levenshtein", NEAR_SHARES),
        (21, "forward", 1, "ltb", NEAR_SHARES),
    ):
        settings = ["dictionary.mode=grow", "dictionary.max_kmers=0"]
        settings += [f"dictionary.k={k}", f"dictionary.strands={strands}"]
        settings += [f"matching.distance={distance}", f"matching.semantics={semantics}"]
        searched = f"{semantics} {distance}" if distance else "none"
        row: Row = {"k": k, "strands": strands, "distance": searched}
        sizes = [int(share * kmers) for share in shares]
        for found in _grown(k, settings, sizes):
            yield row | found


def _grown(k: int, settings: Sequence[str], sizes: Sequence[int]) -> Iterator[Row]:
    """Rows of one daemon, one for each size that its dictionary has reached, to within a batch."""
    read = max(READ, k)
    with (
        tempfile.TemporaryDirectory() as folder,
        serving(Path(folder), settings) as (endpoints, process),
        Control(endpoints["control"]) as control,
        Producer(endpoints["ingest"], answer_seconds=SECONDS) as producer,
    ):
        least, _ = _memory(process.pid)
        sent = 0
        for size in sizes:
            # nearly every window is new
            batch = min(_BATCH, max(read, size // 2))
            left = size - control.status()["dictionary"]["kmers"]
            for _ in range(max(1, left // batch)):
                sent += 1
                reads = batch_of(random_codes(batch, sent), cut(batch, read))
                producer.send(reads, timeout=SECONDS)
            producer.flush(timeout=SECONDS, matched=True)
            kmers = control.status()["dictionary"]["kmers"]
            resident, peak = _settled(process.pid)
            yield {
                "k-mers": kmers,
                "GB": resident,
                "peak GB": peak,
                "bytes a k-mer": 1e9 * (resident - least) / kmers,
                "at the peak": 1e9 * (peak - least) / kmers,
            }


def _settled(process: int) -> tuple[float, float]:
    """Memory once it no longer changes, since the tree lags behind the results."""
    before, same = _memory(process), 0
    while same < _LOOKS:
        time.sleep(_LOOK_SECONDS)
        now = _memory(process)
        same = same + 1 if now == before else 0
        before = now
    return before


def _memory(process: int) -> tuple[float, float]:
    """Current and peak resident memory of a process, in GB."""
    text = Path(f"/proc/{process}/status").read_text()
    now, peak = (re.search(rf"{name}:\s+(\d+) kB", text) for name in ("VmRSS", "VmHWM"))
    assert now is not None
    assert peak is not None
    return int(now[1]) * 1024 / 1e9, int(peak[1]) * 1024 / 1e9
