"""``streamer bench``: how fast it is here, beside its peers in the same run."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Annotated, Any

import typer

from streamer.cli.choices import DeviceChoice


class Section(StrEnum):
    """A part of the exact-matching benchmark."""

    FROZEN = "frozen"
    GROW = "grow"
    SNAPSHOT = "snapshot"
    MEMORY = "memory"
    FIGURE39 = "figure39"
    FILES = "files"


def exact(
    section: Annotated[
        list[Section] | None,
        typer.Option("--section", help="Only this part; may be given again. Default: all."),
    ] = None,
    kmers: Annotated[
        int, typer.Option("--kmers", min=1_000, help="K-mers in the dictionaries.")
    ] = 10_000_000,
    device: Annotated[
        DeviceChoice,
        typer.Option("--device", help="cuda: kernels, engine and growing on a CUDA device."),
    ] = DeviceChoice.CPU,
    reads: Annotated[
        list[str] | None,
        typer.Option("--reads", metavar="FASTQ", help="Read files for 'files', not made-up ones."),
    ] = None,
) -> None:
    """Exact matching: frozen, growing, snapshots, trees, files.

    The peers are sshash (pip install 'kmer-streamer[bench]') and a plain numba hash set. Markdown
    tables go to standard output; the best of several runs counts. The full run takes minutes
    and 8 GB of memory; --kmers makes it small.
    """
    if device is DeviceChoice.CUDA:
        _exact_on_cuda(kmers)
        return
    from streamer.bench import exact as matching
    from streamer.bench import files, trees
    from streamer.bench.table import machine_line, print_table
    from streamer.compiling import compile_notice
    from trie.parallel import usable_cores

    parts: dict[Section, tuple[str, Callable[[], list[dict[str, Any]]]]] = {
        Section.FROZEN: (
            "Frozen dictionary, windows a second",
            lambda: matching.with_ratios(matching.frozen(kmers, kmers)),
        ),
        Section.GROW: ("Growing dictionary", lambda: matching.grow(5 * kmers)),
        Section.SNAPSHOT: ("Snapshots, seconds", lambda: trees.snapshots(size=kmers)),
        Section.MEMORY: (
            "Memory, bytes a k-mer",
            lambda: trees.memory(sizes=(kmers // 10, kmers)),
        ),
        Section.FIGURE39: (
            "Hybrid Tree Bitmap against pointer tree (thesis, Fig. 39)",
            lambda: trees.figure_39(bases=[n for n in trees.FIGURE_39_BASES if n <= kmers]),
        ),
        Section.FILES: (
            "FASTQ.gz to --report reads",
            lambda: files.read_file_to_report(reads, usable_cores(), bases=15 * kmers),
        ),
    }
    typer.echo(machine_line())
    with compile_notice(quiet=False):
        for part, (title, run) in parts.items():
            if section is None or part in section:
                print_table(title, run())


def _exact_on_cuda(kmers: int) -> None:
    from streamer.bench.table import machine_line, print_table
    from streamer.devices import choose_device

    choose_device("cuda", quiet=True)
    from streamer.bench import cuda

    typer.echo(machine_line())
    typer.echo(cuda.device_line())
    print_table("Kernels, data on the card", cuda.kernels(kmers, 12 * kmers))
    print_table("Engine, host memory to host results", cuda.frozen(kmers, 25 * kmers))
    print_table("Growing from empty, and saturated", cuda.growing(20 * kmers))
    print_table("The thesis's experiment (3.4.3)", cuda.thesis())
    print_table("The same, naive kernel, a twentieth", cuda.thesis(("naive",), (50_000, 15, 5_000)))


def ltb(
    device: Annotated[
        DeviceChoice,
        typer.Option("--device", help="cuda: the kernels of the thesis and the bit-sliced one."),
    ] = DeviceChoice.CPU,
    distance: Annotated[
        int, typer.Option("--distance", "-D", min=0, max=4, help="D of the thesis's figures.")
    ] = 2,
    bases: Annotated[
        int, typer.Option("--bases", min=1_000, help="Of the stream of Fig. 37; 38: a fifth.")
    ] = 500_000,
) -> None:
    """The Levenshtein Tree Bitmap: the thesis's Fig. 37 and 38, and other dictionaries.

    Random bases, and a dictionary of the windows in the first 75,000 of them. Data on the card.
    """
    from streamer.bench import ltb as automaton
    from streamer.bench.table import machine_line, print_table
    from streamer.compiling import compile_notice
    from streamer.devices import choose_device

    on_cuda = choose_device(device.value, quiet=False) == "cuda"
    typer.echo(machine_line())
    with compile_notice(quiet=False):
        rows = automaton.figure_37(distance=distance, total=bases, cuda=on_cuda)
        print_table("Naive and transition-efficient (thesis, Fig. 37)", rows)
        if on_cuda:
            rows = automaton.figure_38(distance=distance, total=bases // 5)
            print_table("Transition-efficient and queue (thesis, Fig. 38)", rows)
        rows = automaton.dictionaries(total=200 * bases, cuda=on_cuda)
        print_table("Other dictionaries, bit-sliced", rows)


def levenshtein(
    device: Annotated[
        DeviceChoice, typer.Option("--device", help="cuda: the kernels, on a CUDA device.")
    ] = DeviceChoice.CPU,
    bases: Annotated[
        int, typer.Option("--bases", min=1_000, help="Of the text; on CUDA 16 times as many.")
    ] = 4_000_000,
    kmers: Annotated[
        int, typer.Option("--kmers", min=100, help="In the dictionary that grows.")
    ] = 1_000_000,
) -> None:
    """The full Levenshtein distance to dictionaries, sassy in the same run, and growing.

    Random k-mers and text, one strand, k-mers and starts of the hits included.
    """
    from streamer.bench import levenshtein as near
    from streamer.bench.table import machine_line, print_table
    from streamer.compiling import compile_notice

    typer.echo(machine_line())
    with compile_notice(quiet=False):
        if device is DeviceChoice.CUDA:
            from streamer.devices import choose_device

            choose_device("cuda", quiet=True)
            from streamer.bench.cuda import device_line

            typer.echo(device_line())
            print_table("Dictionaries, data on the card", near.on_card(16 * bases))
            return
        print_table("Against sassy, one thread", near.against_sassy(bases))
        print_table("Dictionaries, one thread", near.dictionaries(bases))
        print_table("Growing", near.growth(kmers))


def daemon(
    device: Annotated[
        DeviceChoice, typer.Option("--device", help="Where the daemon matches.")
    ] = DeviceChoice.AUTO,
    k: Annotated[int, typer.Option("--kmer", "-k", min=1, max=31)] = 21,
    producers: Annotated[
        int, typer.Option("--producers", min=1, max=64, help="Processes that send.")
    ] = 4,
    bases: Annotated[int, typer.Option("--bases", min=1_000_000, help="Bases a measurement.")] = 1
    << 31,
) -> None:
    """The daemon from socket to feed, over loopback: TCP and local sockets, batches of 1 and 4 MB.

    Starts daemons, producers and a subscriber of its own; nothing that runs is asked.
    """
    from streamer.bench import daemon as bench
    from streamer.bench.table import machine_line, print_table

    typer.echo(machine_line())
    print_table(
        "Daemon, socket to feed",
        list(bench.daemon(device=device.value, k=k, producers=producers, bases=bases)),
    )


def hamming(
    symbols: Annotated[
        int, typer.Option("--symbols", min=10_000, help="Characters of Table 1's text.")
    ] = 10_280_000,
    sets: Annotated[int, typer.Option("--sets", min=1, help="Sets of patterns of Table 1.")] = 10,
    device: Annotated[
        DeviceChoice, typer.Option("--device", help="cuda: the kernels, on a CUDA device.")
    ] = DeviceChoice.CPU,
) -> None:
    """Search with k mismatches: seed 002's Tables 1-3, and hyperscan on the CPU.

    --symbols below the paper's 10,280,000 makes the texts of all tables smaller.
    """
    from streamer.bench import hamming as search
    from streamer.bench.table import machine_line, print_table
    from streamer.compiling import compile_notice

    on_card = device is DeviceChoice.CUDA
    typer.echo(machine_line())
    if on_card:
        from streamer.devices import choose_device

        choose_device("cuda", quiet=True)
        from streamer.bench.cuda import device_line

        typer.echo(device_line())
    rate = search.card_rate if on_card else search.cpu_rate
    methods = search.methods_of("cuda" if on_card else "cpu")
    sizes = [max(1000, size * symbols // 10_280_000) for size in search.SIZES]
    with compile_notice(quiet=False):
        print_table("Table 1, characters a second", search.table_1(rate, methods, symbols, sets))
        print_table("Table 2, 8 patterns of 9", search.table_2(rate, methods, sizes))
        rows = search.table_3(rate, methods, sizes)
        print_table("Table 3, 8 patterns of 12", rows)
        naive, _ = search.naive_rate(sizes[-1])
        print_table("Ratios of Table 3", search.ratios(rows, on_card, naive))
        if not on_card:
            print_table("Against hyperscan, one thread", search.peers(symbols))


def register(app: typer.Typer) -> None:
    """Add the commands."""
    benchmarks = typer.Typer(no_args_is_help=True)
    benchmarks.callback(help="How fast it is here, beside its peers in the same run.")(_group)
    benchmarks.command("exact")(exact)
    benchmarks.command("hamming")(hamming)
    benchmarks.command("daemon")(daemon)
    benchmarks.command("ltb")(ltb)
    benchmarks.command("levenshtein")(levenshtein)
    app.add_typer(benchmarks, name="bench")


def _group() -> None:
    """A group even with one command."""
