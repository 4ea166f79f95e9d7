"""``scripts/bench NAME``: how fast it is on this machine, beside its peers in the same run."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from streamer.cli.choices import ThreadsOption
from streamer.errors import UsageError
from streamer.matching.spec import Device

ExactSection = StrEnum("ExactSection", "frozen reads grow snapshot memory figure39 files")
PrimerSection = StrEnum("PrimerSection", "methods scaling filter prefetch blocks growing")
FileSection = StrEnum("FileSection", "commands profile")
IndexSection = StrEnum("IndexSection", "index commands")
DaemonSection = StrEnum("DaemonSection", "speed latency pages jobs replay restart")
ClusterSection = StrEnum("ClusterSection", "jobs streams shards")
Durability = StrEnum("Durability", "none os fsync")

_gpus = typer.Option(
    metavar="N,N", help="With cuda: one table only, the same work on each number of GPUs."
)
_section = typer.Option(help="Only this part; may be repeated. Default: all.")


def exact(
    section: Annotated[list[ExactSection] | None, _section] = None,
    kmers: Annotated[int, typer.Option(min=1_000, help="K-mers in the dictionaries.")] = 10_000_000,
    device: Annotated[
        Device, typer.Option(help="cuda: kernels, engine and growing on a CUDA device.")
    ] = "cpu",
    reads: Annotated[
        list[str] | None,
        typer.Option(metavar="FASTQ", help="Read files for 'files' instead of synthetic ones."),
    ] = None,
    gpus: Annotated[str | None, _gpus] = None,
) -> None:
    """Exact matching: frozen, growing, snapshots, trees, files.

    The peers are sshash (in the extra 'bench' of the package) and a plain numba hash set. Markdown
    tables go to standard output; the best of several runs counts. The full run takes minutes
    and 8 GB of memory; --kmers makes it small.
    """
    _run("exact", device, section, gpus=gpus, kmers=kmers, reads=reads)


def index(
    bases: Annotated[
        int, typer.Option(min=1_000_000, help="Bases of the model genome; 3_100_000_000 is human.")
    ] = 200_000_000,
    fasta: Annotated[
        list[str] | None,
        typer.Option(help="A genome in place of the model one; may be given again."),
    ] = None,
    reads: Annotated[
        int, typer.Option(min=1_000_000, help="Bases of the reads of whole commands.")
    ] = 300_000_000,
    peers: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="An environment with deacon of PyPI.")
    ] = None,
    section: Annotated[list[IndexSection] | None, _section] = None,
) -> None:
    """The index of a genome: bytes a base, building, opening, matching, and whole commands.

    The peers are sshash, and kraken2 and deacon if they are installed (deacon of PyPI: --peers),
    with up to 134 M bases.
    Answers that differ from those of a growing table are counted.
    """
    _run("index", "cpu", section, bases=bases, fasta=fasta or [], reads=reads, beside=peers)


def ltb(
    device: Annotated[
        Device, typer.Option(help="cuda: the kernels of the thesis and the bit-sliced one.")
    ] = "cpu",
    distance: Annotated[
        int, typer.Option("--distance", "-D", min=0, max=4, help="D of the thesis's figures.")
    ] = 2,
    bases: Annotated[
        int, typer.Option(min=1_000, help="Bases of Fig. 37's stream; Fig. 38 takes a fifth.")
    ] = 500_000,
) -> None:
    """The Levenshtein Tree Bitmap: the thesis's Fig. 37 and 38, and other dictionaries.

    Random bases, and a dictionary of the windows in the first 75,000 of them. With cuda,
    data is in GPU memory.
    """
    _run("ltb", device, distance=distance, bases=bases)


def levenshtein(
    device: Annotated[Device, typer.Option(help="cuda: the kernels, on a CUDA device.")] = "cpu",
    bases: Annotated[
        int, typer.Option(min=1_000, help="Bases of the text; on CUDA 16 times as many.")
    ] = 4_000_000,
    kmers: Annotated[int, typer.Option(min=100, help="The growing dictionary.")] = 1_000_000,
) -> None:
    """The full Levenshtein distance to dictionaries, sassy in the same run, and growing.

    Random k-mers and text, one strand, k-mers and starts of the hits included.
    """
    _run("levenshtein", device, bases=bases, kmers=kmers)


def daemon(
    device: Annotated[Device, typer.Option(help="Where the daemon matches.")] = "auto",
    k: Annotated[int, typer.Option("--kmer", "-k", min=1, max=31)] = 21,
    producers: Annotated[int, typer.Option(min=1, max=64, help="Processes that send.")] = 4,
    bases: Annotated[int, typer.Option(min=1_000_000, help="Bases of a measurement.")] = 1 << 31,
    durability: Annotated[
        list[Durability] | None, typer.Option(help="Durability of the journal; may be repeated.")
    ] = None,
    section: Annotated[list[DaemonSection] | None, _section] = None,
    seconds: Annotated[float, typer.Option(min=1, help="Seconds of a latency measurement.")] = 20,
    kmers: Annotated[
        int, typer.Option(min=1_000, help="K-mers in the journal to restart from.")
    ] = 10_000_000,
    restarts: Annotated[int, typer.Option(min=1, help="How often the daemon is killed.")] = 100,
    pairs: Annotated[int, typer.Option(min=1, help="Runs with and without pages or jobs.")] = 6,
    index: Annotated[
        Path | None, typer.Option(help="Of a genome, as the dictionary of section speed.")
    ] = None,
    gpus: Annotated[str | None, _gpus] = None,
) -> None:
    """The daemon from socket to feed, and its journal: latency, pages, jobs, replay, restart.

    Over loopback: TCP and local sockets, batches of 1 and 4 MB. Starts its own daemons, producers
    and subscribers; a running daemon is left alone.
    """
    _run(
        "daemon",
        device,
        section,
        gpus=gpus,
        k=k,
        producers=producers,
        bases=bases,
        # Plain strings: processes that are spawned cannot import what __main__ defines.
        durabilities=tuple(map(str, durability or ("none", "fsync"))),
        seconds=seconds,
        kmers=kmers,
        restarts=restarts,
        pairs=pairs,
        index=index,
    )


def file(
    section: Annotated[list[FileSection] | None, _section] = None,
    bases: Annotated[int, typer.Option(min=100_000, help="Bases of a file.")] = 1_000_000_000,
    device: Annotated[Device, typer.Option(help="Where the commands match.")] = "cpu",
    threads: ThreadsOption = 0,
    repeats: Annotated[int, typer.Option(min=1, help="Runs of a command; the best counts.")] = 2,
) -> None:
    """From files to answers: match, filter and send, a process each, beside other programs.

    Reads of 150 and of 10,000 bases, half of them foreign, as FASTQ, FASTQ.gz, BGZF and BAM.
    kraken2, bbduk and deacon take part if they are installed. The files take up to 5 bytes a base.
    """
    _run("file", device, section, bases=bases, threads=threads, repeats=repeats)


def accuracy(
    folders: Annotated[
        list[Path], typer.Argument(metavar="FOLDER", help="Where the sequences are, at any depth.")
    ],
    reads: Annotated[
        int, typer.Option(min=8, help="Pairs of each source; long reads are a quarter as many.")
    ] = 20_000,
    peers: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="An environment with deacon and cleanifier of PyPI."),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of the reads.")] = 0,
    threads: ThreadsOption = 0,
) -> None:
    """Removal of a host: sensitivity and specificity, deacon and others in the same run.

    kraken2 and minimap2 take part if they are installed. docs/performance/accuracy.md names the
    packages that have the sequences. The files take 1 GB for 20,000 pairs.
    """
    _run("accuracy", "cpu", folders=folders, reads=reads, peers=peers, seed=seed, threads=threads)


def cluster(
    section: Annotated[list[ClusterSection] | None, _section] = None,
    workers: Annotated[
        list[int] | None,
        typer.Option(min=1, max=1024, help="Workers of a cluster; may be repeated. Default: 1, 2."),
    ] = None,
    bases: Annotated[
        int, typer.Option(min=1_000_000, help="Bases of a stream; texts of asm have a twentieth.")
    ] = 200_000_000,
    kmers: Annotated[
        int, typer.Option(min=1000, help="K-mers of a dictionary that workers share.")
    ] = 100_000_000,
) -> None:
    """Jobs and streams on clusters of this machine, beside one process with as many threads.

    Each ends with a model, fitted to the rows: seconds a base = shared + own / workers. Then the
    memory of a dictionary in shards, one for each worker.
    """
    _run("cluster", "cpu", section, workers=tuple(workers or (1, 2)), bases=bases, kmers=kmers)


def commands(
    device: Annotated[
        Literal["cpu", "both"],
        typer.Option(help="both: one table, commands on the CPU and on a GPU, and what auto says."),
    ] = "cpu",
    kmers: Annotated[
        int, typer.Option(min=1_000, help="K-mers of the dictionaries of match and the daemon.")
    ] = 20_000_000,
    bases: Annotated[
        int, typer.Option(min=1_000, help="Bases of the text of asm, hamming and primer.")
    ] = 300_000_000,
    strain: Annotated[
        int, typer.Option(min=10_000, help="Bases of the genomes of lcs.")
    ] = 5_000_000,
) -> None:
    """Whole commands on the CPU, a process each: seconds and memory to plan with.

    Random data, made with a seed. Memory is exact; seconds are those of a busy or idle machine.
    """
    if device == "both":
        _run("both_devices", "cpu", bases=bases)
    else:
        _run("commands", "cpu", kmers=kmers, bases=bases, strain=strain)


def asm(
    device: Annotated[
        Device, typer.Option(help="cuda: the kernels too, on a CUDA device.")
    ] = "cpu",
    scale: Annotated[float, typer.Option(min=0.001, max=1, help="Shrinks the texts.")] = 1.0,
    gpus: Annotated[str | None, _gpus] = None,
) -> None:
    """Approximate string matching: the WsPASM paper's Table 1 and Fig. 6-7, and the peers.

    Random DNA. Positions and distances of all hits are part of the times: CPU time of one thread in
    the paper's tables, wall time from letters to rows beside the peers. With cuda: every method of
    the GPU, and no peers.
    """
    _run("asm", device, gpus=gpus, scale=scale)


def hamming(
    symbols: Annotated[
        int, typer.Option(min=10_000, help="Characters of Table 1's text.")
    ] = 10_280_000,
    sets: Annotated[int, typer.Option(min=1, help="Sets of patterns of Table 1.")] = 10,
    device: Annotated[Device, typer.Option(help="cuda: the kernels, on a CUDA device.")] = "cpu",
    gpus: Annotated[str | None, _gpus] = None,
) -> None:
    """Search with k mismatches: the PMASM paper's Tables 1-3, and hyperscan on the CPU.

    --symbols below the paper's 10,280,000 makes the texts of all tables smaller.
    """
    _run("hamming", device, gpus=gpus, symbols=symbols, sets=sets)


def lcs(
    device: Annotated[
        Device, typer.Option(help="cuda: Fig. 4-7 and Table 1 at full size, on a CUDA device.")
    ] = "cpu",
    scale: Annotated[
        float | None,
        typer.Option(
            min=0.0001,
            max=1,
            help="The paper's lengths (5-20 M x 1-10 M) times this; 0.01 on the CPU, 1 on CUDA.",
        ),
    ] = None,
    size: Annotated[
        int, typer.Option(min=1_000, help="Longest sequences for rapidfuzz's table.")
    ] = 100_000,
) -> None:
    """The longest common subsequence: the LCS paper's Fig. 4-7 and Table 1, and rapidfuzz.

    Random bases. The methods in one run: length alone, subsequence, similar genomes.
    """
    _run("lcs", device, scale=scale, size=size)


def primer(
    section: Annotated[list[PrimerSection] | None, _section] = None,
    device: Annotated[
        Device, typer.Option(help="cuda: the paper's kernels and the default on a GPU.")
    ] = "cpu",
    starts: Annotated[
        int, typer.Option(min=0, help="Starts for slow methods; 0: a sensible number.")
    ] = 0,
    size: Annotated[
        str | None,
        typer.Option(metavar="ALPHA,BETA,K", help="Lengths and k, such as 4000,20000,9."),
    ] = None,
    gpus: Annotated[str | None, _gpus] = None,
) -> None:
    """The primer problem: Tables 1-5 and Figures 5, 7, 9 and 10 of the paper, beside its ratios.

    Slow methods are measured on some starts. Tables go to standard output.
    """
    _run("primer", device, section, gpus=gpus, starts=starts, size=_size(size) if size else None)


def _run(
    suite: str,
    device: str,
    sections: list[Any] | None = None,
    gpus: str | None = None,
    **options: Any,
) -> None:
    from benchmarks.suite import run

    if gpus is not None:
        run("several_gpus", device, job=suite, gpus=_numbers(gpus), scale=options.get("scale", 1))
        return
    run(suite, device, sections or (), **options)


def _numbers(text: str) -> tuple[int, ...]:
    numbers = text.split(",")
    if len(numbers) < 2 or not all(number.isdecimal() and int(number) for number in numbers):
        raise UsageError(f"--gpus {text}: give N,N, such as 1,2")
    return tuple(map(int, numbers))


def _size(text: str) -> tuple[int, int, int]:
    numbers = text.split(",")
    if len(numbers) != 3 or not all(number.isdecimal() and int(number) for number in numbers):
        raise UsageError(f"--size {text}: give ALPHA,BETA,K, such as 4000,20000,9")
    return int(numbers[0]), int(numbers[1]), int(numbers[2])


app = typer.Typer(name="bench", no_args_is_help=True)
app.callback(help="Measure how fast it is here, beside its peers in the same run.")(lambda: None)
for _suite in (
    exact,
    index,
    accuracy,
    file,
    asm,
    hamming,
    daemon,
    cluster,
    commands,
    ltb,
    lcs,
    primer,
    levenshtein,
):
    app.command(_suite.__name__)(_suite)

if __name__ == "__main__":
    from streamer.__main__ import run

    run(app)
