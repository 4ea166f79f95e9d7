"""``streamer bench``: how fast it is here, beside its peers in the same run."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from functools import partial
from typing import Annotated, Any

import typer

from streamer.cli.choices import DeviceChoice
from streamer.errors import UsageError


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

    The peers are sshash (in the extra 'bench' of the package) and a plain numba hash set. Markdown
    tables go to standard output; the best of several runs counts. The full run takes minutes
    and 8 GB of memory; --kmers makes it small.
    """
    if device is DeviceChoice.CUDA:
        _exact_on_cuda(kmers)
        return
    from streamer.bench import exact as matching
    from streamer.bench import files, trees
    from streamer.bench.table import machine_line, print_table
    from trie.cpu.compiling import compile_notice
    from trie.cpu.threads import usable_cores

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
    engine = partial(cuda.frozen, kmers, 25 * kmers)
    print_table("Engine, host memory to host results", engine(cuda.KS, (1 << 24,), (2,)))
    print_table("The same by chunk and streams", engine((15,), (1 << 20, 1 << 22), (1, 2)))
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
    from streamer.devices import choose_device
    from trie.cpu.compiling import compile_notice

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
    from trie.cpu.compiling import compile_notice

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


def commands(
    kmers: Annotated[
        int, typer.Option("--kmers", min=1_000, help="K-mers of the dictionaries of match.")
    ] = 20_000_000,
    bases: Annotated[
        int, typer.Option("--bases", min=1_000, help="Of the text of asm, hamming and primer.")
    ] = 300_000_000,
    strain: Annotated[
        int, typer.Option("--strain", min=10_000, help="Bases of the genomes of lcs.")
    ] = 5_000_000,
) -> None:
    """Whole commands on the CPU, a process each: seconds and memory to plan with.

    Random data, made with a seed. Memory is exact; seconds are those of a busy or idle machine.
    """
    from streamer.bench import commands as whole
    from streamer.bench.table import machine_line, print_table

    typer.echo(machine_line())
    print_table("match, by dictionary", list(whole.dictionaries(kmers)))
    print_table("Long texts", list(whole.texts(bases)))
    print_table("lcs of two strains", list(whole.strains(strain)))


def asm(
    device: Annotated[
        DeviceChoice, typer.Option("--device", help="cuda: the kernels too, on a CUDA device.")
    ] = DeviceChoice.CPU,
    scale: Annotated[
        float, typer.Option("--scale", min=0.001, max=1, help="Shrinks the texts.")
    ] = 1.0,
) -> None:
    """Approximate pattern search: the WsPASM paper's Table 1 and Fig. 6-7, and the peers.

    Random DNA. Positions and distances of all hits are part of the times: CPU time of one thread in
    the paper's tables, wall time from letters to rows beside the peers. With cuda every method of
    the card, and no peers.
    """
    from streamer.bench import asm as search
    from streamer.bench.table import machine_line, print_table
    from trie.cpu.compiling import compile_notice

    on_card = device is DeviceChoice.CUDA
    typer.echo(machine_line())
    if on_card:
        from streamer.devices import choose_device

        choose_device("cuda", quiet=True)
        from streamer.bench.cuda import device_line

        typer.echo(device_line())
    with compile_notice(quiet=False):
        print_table("Table 1", search.table_1(cuda=on_card, scale=scale))
        print_table("Figures 6 and 7", search.figures_6_7(cuda=on_card, scale=scale))
        if not on_card:
            print_table("Against peers, one pattern", search.peers(int(64_000_000 * scale)))
            print_table("Against peers, 96 patterns", search.many(int(4_000_000 * scale)))


def hamming(
    symbols: Annotated[
        int, typer.Option("--symbols", min=10_000, help="Characters of Table 1's text.")
    ] = 10_280_000,
    sets: Annotated[int, typer.Option("--sets", min=1, help="Sets of patterns of Table 1.")] = 10,
    device: Annotated[
        DeviceChoice, typer.Option("--device", help="cuda: the kernels, on a CUDA device.")
    ] = DeviceChoice.CPU,
) -> None:
    """Search with k mismatches: the PMASM paper's Tables 1-3, and hyperscan on the CPU.

    --symbols below the paper's 10,280,000 makes the texts of all tables smaller.
    """
    from streamer.bench import hamming as search
    from streamer.bench.table import machine_line, print_table
    from trie.cpu.compiling import compile_notice

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


def lcs(
    device: Annotated[
        DeviceChoice,
        typer.Option("--device", help="cuda: Fig. 4-7 and Table 1 at full size, on a CUDA device."),
    ] = DeviceChoice.CPU,
    scale: Annotated[
        float | None,
        typer.Option(
            "--scale",
            min=0.0001,
            max=1,
            help="The paper's lengths (5-20 M x 1-10 M) times this; 0.01 on the CPU, 1 on CUDA.",
            show_default=False,
        ),
    ] = None,
    size: Annotated[
        int, typer.Option("--size", min=1_000, help="Longest sequences for rapidfuzz's table.")
    ] = 100_000,
) -> None:
    """The longest common subsequence: the LCS paper's Fig. 4-7 and Table 1, and rapidfuzz.

    Random bases. The methods in one run: length alone, subsequence, similar genomes.
    """
    from streamer.bench import lcs as common
    from streamer.bench.table import machine_line, print_table
    from streamer.devices import choose_device
    from trie.cpu.compiling import compile_notice
    from trie.cpu.threads import usable_cores

    on = choose_device(device.value, quiet=False)
    part = scale or (1.0 if on == "cuda" else 0.01)
    threads = usable_cores()
    typer.echo(machine_line())
    with compile_notice(quiet=False):
        if on == "cuda":
            print_table("Length alone, n x n", common.card_lengths(threads=threads))
            title = f"Fig. 4-7 and Table 1, lengths x {part:g}: seconds of the full LCS"
            print_table(title, common.card_figures(part, threads))
            return
        sizes = sorted({size // 100, size // 10, size} - {0})
        print_table("Length alone, n x n", common.lengths(sizes, threads))
        print_table("One subsequence, n x n", common.sequences((size // 10, size // 2), threads))
        print_table("Similar genomes, one thread", common.similar(50 * size))
        rows = common.figures(part, threads)
        print_table(f"Fig. 4-7, lengths x {part:g}: seconds of the full LCS", rows)
        print_table(f"Table 1, lengths x {part:g}", common.table_1(part, threads))


class PrimerSection(StrEnum):
    """A part of the primer benchmark."""

    METHODS = "methods"
    SCALING = "scaling"
    FILTER = "filter"
    PREFETCH = "prefetch"
    BLOCKS = "blocks"
    GROWING = "growing"


def primer(
    section: Annotated[
        list[PrimerSection] | None,
        typer.Option("--section", help="Only this part; may be given again. Default: all."),
    ] = None,
    device: Annotated[
        DeviceChoice,
        typer.Option("--device", help="cuda: the paper's kernels and the default on a card."),
    ] = DeviceChoice.CPU,
    starts: Annotated[
        int, typer.Option("--starts", min=0, help="Starts for slow methods; 0: a good number.")
    ] = 0,
    size: Annotated[
        str | None,
        typer.Option("--size", metavar="ALPHA,BETA,K", help="Lengths and k, such as 4000,20000,9."),
    ] = None,
) -> None:
    """The primer problem: Tables 1-5, Figures 5, 7, 9 and 10 of the paper again, ratios beside its.

    Slow methods are measured on some starts. Tables go to standard output.
    """
    from streamer.bench import primer as parts
    from streamer.bench.table import machine_line, print_table
    from trie.cpu.compiling import compile_notice

    given = _size(size) if size else None
    at = given or parts.SIZE
    card = device is DeviceChoice.CUDA
    if card:
        from streamer.devices import choose_device

        choose_device("cuda", quiet=True)
        number = starts or 1056
        share = 1 if given else 16  # of beta, where a method would take hours
        runs: dict[PrimerSection, tuple[str, Callable[[], list[dict[str, Any]]]]] = {
            PrimerSection.METHODS: (
                "Methods (Table 3, Fig. 7)", lambda: parts.on_card(at, number)
            ),
            PrimerSection.PREFETCH: (
                "Speculative prefetch (Table 4)",
                lambda: parts.prefetch(given or parts.TABLE_4, number, share=share),
            ),
            PrimerSection.BLOCKS: (
                "Threads a block (Fig. 9)",
                lambda: parts.block_sizes(given or parts.TABLE_4, number, share=share),
            ),
        }  # fmt: skip
    else:
        number = starts or 16
        runs = {
            PrimerSection.METHODS: (
                "Methods (Tables 1, 2)", lambda: parts.on_cores(at, number)
            ),
            PrimerSection.SCALING: ("By threads (Fig. 5)", lambda: parts.scaling(at, number)),
            PrimerSection.FILTER: ("Filter for small k", parts.filtered),
        }  # fmt: skip
    sizes = (given,) if given else (parts.SIZE, parts.TABLE_5, parts.TABLE_4)
    runs[PrimerSection.GROWING] = (
        "Sizes (Fig. 10, Table 5)", lambda: parts.growing(device.value, sizes)
    )  # fmt: skip
    typer.echo(machine_line())
    with compile_notice(quiet=False):
        for part, (title, run) in runs.items():
            if section is None or part in section:
                print_table(title, run())


def _size(text: str) -> tuple[int, int, int]:
    numbers = text.split(",")
    if len(numbers) != 3 or not all(number.isdecimal() and int(number) for number in numbers):
        message = f"--size {text}: give ALPHA,BETA,K, such as 4000,20000,9"
        raise UsageError(message)
    return int(numbers[0]), int(numbers[1]), int(numbers[2])


def register(app: typer.Typer) -> None:
    """Add the commands."""
    benchmarks = typer.Typer(no_args_is_help=True)
    benchmarks.callback(help="How fast it is here, beside its peers in the same run.")(_group)
    benchmarks.command("exact")(exact)
    benchmarks.command("asm")(asm)
    benchmarks.command("hamming")(hamming)
    benchmarks.command("daemon")(daemon)
    benchmarks.command("commands")(commands)
    benchmarks.command("ltb")(ltb)
    benchmarks.command("lcs")(lcs)
    benchmarks.command("primer")(primer)
    benchmarks.command("levenshtein")(levenshtein)
    app.add_typer(benchmarks, name="bench")


def _group() -> None:
    """A group even with one command."""
