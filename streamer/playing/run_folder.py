"""Write the files of a run as MinKNOW names, fills and completes them.

    fastq_pass/[BARCODE/]FLOWCELL_pass_[BARCODE_]PROTOCOL_RUN_NUMBER.fastq.gz
    sequencing_summary_FLOWCELL_PROTOCOL_RUN.txt
    final_summary_FLOWCELL_PROTOCOL_RUN.txt       once all other files are complete

A file is complete once it has a given number of reads, or its first read reaches a given age.
Nothing in the files depends on the clock: equal runs give equal files.
"""

from __future__ import annotations

import random
import uuid
import zlib
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np

from streamer.playing.channels import Played

_BEGUN = datetime(2025, 1, 1, tzinfo=UTC)
_PLAIN_BYTES = 8192  # buffer size of a writer that is not flushed explicitly
_GZIP = 16 + zlib.MAX_WBITS


class _GrowingFile:
    """A growing FASTQ file; compressed data goes out in blocks, ``close`` ends the gzip stream."""

    def __init__(self, path: Path, begun: float, *, plain: bool) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.name = path.name
        self.begun = begun
        self.reads = 0
        self._packer = None if plain else zlib.compressobj(1, zlib.DEFLATED, _GZIP)
        self._file = open(path, "xb", buffering=_PLAIN_BYTES if plain else 0)

    def add(self, text: bytes) -> None:
        self.reads += 1
        self._file.write(self._packer.compress(text) if self._packer else text)

    def flush(self) -> None:
        self._file.flush()

    def close(self) -> None:
        if self._packer:
            self._file.write(self._packer.flush())
        self._file.close()


class RunFolder:
    """Writes a run to a folder; raises OSError if a file cannot be written or exists already.

    file_reads, file_seconds: limits per file. plain: do not compress FASTQ.
    """

    def __init__(
        self, folder: str, seed: int, *, plain: bool, file_reads: int, file_seconds: float
    ) -> None:
        chance = random.Random(f"names {seed}")
        run, protocol = (uuid.UUID(int=chance.getrandbits(128), version=4) for _ in range(2))
        self.files = 0
        self._folder = Path(folder)
        self._flow_cell = f"FPL{chance.randrange(100_000):05}"
        self._run, self._protocol = str(run), str(protocol)
        self._stem = f"{self._flow_cell}_{self._protocol[:8]}_{self._run[:8]}"
        self._plain = plain
        self._file_reads = file_reads
        self._file_seconds = file_seconds
        self._numbers = Counter[str]()
        self._open: dict[str, _GrowingFile] = {}
        self._end = 0.0
        self._folder.mkdir(parents=True, exist_ok=True)
        self._summary = open(self._folder / f"sequencing_summary_{self._stem}.txt", "x")
        self._summary.write("\t".join(_COLUMNS) + "\n")

    def add(self, one: Played) -> None:
        """Write a read that is complete."""
        barcode = one.read.barcode
        file = self._open.get(barcode)
        if file and (file.reads >= self._file_reads or self._is_old(file, one.end)):
            self._close(barcode)
            file = None
        if file is None:
            file = self._open[barcode] = self._begin(barcode, one.end)
        file.add(one.read.text)
        self._end = one.end
        self._summary.write("\t".join(map(str, self._row(one, file.name, barcode))) + "\n")

    def flush(self, now: float) -> None:
        """Flush everything that is not inside a compressor; complete files that are old enough."""
        for barcode in [b for b, file in self._open.items() if self._is_old(file, now)]:
            self._close(barcode)
        for file in self._open.values():
            file.flush()
        self._summary.flush()

    def close(self) -> None:
        """Complete all open files."""
        for barcode in list(self._open):
            self._close(barcode)
        self._summary.close()

    def end(self) -> None:
        """The run is over: complete everything, then write the final summary."""
        self.close()
        stopped = (_BEGUN + timedelta(seconds=self._end)).isoformat()
        lines = {
            "instrument": "streamer-play",
            "flow_cell_id": self._flow_cell,
            "protocol_run_id": self._protocol,
            "acquisition_run_id": self._run,
            "started": _BEGUN.isoformat(),
            "acquisition_stopped": stopped,
            "processing_stopped": stopped,
            "basecalling_enabled": 1,
            "sequencing_summary_file": f"sequencing_summary_{self._stem}.txt",
            "fastq_files_in_final_dest": self.files,
            "fastq_files_in_fallback": 0,
        }
        with open(self._folder / f"final_summary_{self._stem}.txt", "x") as file:
            file.writelines(f"{key}={value}\n" for key, value in lines.items())

    def _is_old(self, file: _GrowingFile, now: float) -> bool:
        return now - file.begun >= self._file_seconds

    def _begin(self, barcode: str, now: float) -> _GrowingFile:
        parts = [self._flow_cell, "pass", barcode, self._protocol[:8], self._run[:8]]
        number = self._numbers[barcode]
        self._numbers[barcode] += 1
        name = "_".join(part for part in [*parts, str(number)] if part)
        suffix = ".fastq" if self._plain else ".fastq.gz"
        path = self._folder / "fastq_pass" / barcode / (name + suffix)
        file = _GrowingFile(path, now, plain=self._plain)
        self.files += 1
        return file

    def _close(self, barcode: str) -> None:
        self._open.pop(barcode).close()

    def _row(self, one: Played, file: str, barcode: str) -> list[object]:
        seconds = f"{one.start:.6f}", f"{one.end - one.start:.6f}"
        quality = _mean_quality(one.read.text.rsplit(b"\n", 2)[-2].rstrip(b"\r"))
        passes = "TRUE"
        facts = [file, one.read.name, self._run, one.channel, *seconds, passes, one.read.bases]
        return [*facts, f"{quality:.6f}", barcode or "."]


_COLUMNS = (
    "filename_fastq", "read_id", "run_id", "channel", "start_time", "duration", "passes_filtering",
    "sequence_length_template", "mean_qscore_template", "barcode_arrangement",
)  # fmt: skip


def _mean_quality(qualities: bytes) -> float:
    """Return the quality that corresponds to the mean error probability."""
    if not qualities:
        return 0.0
    values = np.frombuffer(qualities, np.uint8).astype(np.float64) - 33
    return float(-10 * np.log10(np.mean(10 ** (-values / 10))))
