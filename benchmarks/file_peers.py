"""Other programs that classify or filter the same files, if they are installed."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

from benchmarks.processes import measured
from trie.cpu.threads import usable_cores


class Peer(NamedTuple):
    """Another program. command: its command line, without the file of reads, which comes last."""

    name: str
    command: list[str]

    def run(self, reads: Path) -> dict[str, float]:
        """Seconds and memory; its output is dropped."""
        last = f"in={reads}" if self.name == "bbduk" else str(reads)
        return measured([*self.command, last], errors=subprocess.DEVNULL)


def found_peers(genome: Path, k: int, threads: int, at: Path | None = None) -> list[Peer]:
    """The installed peers, each with a database of the genome in the folder ``at``, or beside it.

    genome: FASTA, not compressed.
    """
    given = genome, at or genome.parent, k, threads or usable_cores()
    return [peer for make in (_kraken2, _bbduk, _deacon) if (peer := make(*given))]


def _kraken2(genome: Path, at: Path, k: int, threads: int) -> Peer | None:
    """Uses its own length of k-mers, 35; gives a row for each read."""
    if shutil.which("kraken2") is None or shutil.which("kraken2-build") is None:
        return None
    base = build_kraken2(genome, at, threads)
    return Peer("kraken2", ["kraken2", "--db", str(base), "--threads", str(threads)])


def build_kraken2(genome: Path, at: Path, threads: int) -> Path:
    """Build a database of a FASTA file in a folder, in which all records are one species."""
    base = at / "kraken2"
    (base / "taxonomy").mkdir(parents=True)
    fields = "\t|\t".join
    (base / "taxonomy" / "nodes.dmp").write_text(
        fields(["1", "1", "no rank", "\t|\n"]) + fields(["2", "1", "species", "\t|\n"])
    )
    (base / "taxonomy" / "names.dmp").write_text(
        "".join(
            fields([i, name, "", "scientific name\t|\n"])
            for i, name in (("1", "root"), ("2", "genome"))
        )
    )
    library = base / "genome.fa"
    with genome.open("rb") as source, library.open("wb") as file:
        for number, line in enumerate(source):
            file.write(b">r%d|kraken:taxid|2\n" % number if line.startswith(b">") else line)
    build = ["kraken2-build", "--db", str(base), "--no-masking", "--threads", str(threads)]
    for step in (["--add-to-library", str(library)], ["--build"]):
        subprocess.run([*build, *step], check=True, capture_output=True)
    return base


def _bbduk(genome: Path, at: Path, k: int, threads: int) -> Peer | None:
    """Only counts the reads on target; needs -Xmx, as it cannot tell how much memory there is."""
    if shutil.which("bbduk.sh") is None:
        return None
    options = [f"ref={genome}", f"k={k}", f"threads={threads}", "-Xmx4g"]
    return Peer("bbduk", ["bbduk.sh", *options])


def _deacon(genome: Path, at: Path, k: int, threads: int) -> Peer | None:
    """Writes the reads on target."""
    if shutil.which("deacon") is None:
        return None
    index = at / "deacon.idx"
    made = subprocess.run(
        ["deacon", "index", "build", "-k", str(k), str(genome)], check=True, capture_output=True
    )
    index.write_bytes(made.stdout)
    return Peer("deacon", ["deacon", "filter", "--threads", str(threads), str(index)])
