"""``streamer filter``: reads of files that match a dictionary, or those that do not."""

from typing import Annotated, Literal

import typer

from streamer.cli import choices
from streamer.errors import UsageError
from streamer.watching import SETTLE_SECONDS
from trie.strands import Strands

_PRESETS = {
    None: (1, 0.0, False),
    "host-short": (14, 0.0, None),
    "host-long": (5, 0.02, False),
}
"""Windows, fraction, and whether pairs are decided together; None: where there are pairs."""


def filter_(
    dictionary: Annotated[
        list[str],
        typer.Option(
            "--dictionary",
            "-d",
            metavar="FASTX|FOLDER",
            help="Targets, or an index of them; may be given again.",
        ),
    ],
    reads: Annotated[
        list[str] | None,
        typer.Argument(metavar="READS", help=choices.READS, show_default=False),
    ] = None,
    targets: choices.TargetsOption = None,
    target_by: choices.TargetByOption = "record",
    k: choices.KmerLengthOption = None,
    keep: Annotated[bool, typer.Option("--keep", help="Write the reads on target.")] = False,
    deplete: Annotated[
        bool, typer.Option("--deplete", help="Write the reads that are not on target.")
    ] = False,
    preset: Annotated[
        Literal["host-short", "host-long"] | None,
        typer.Option(
            help="How a host's reads are told, k = 31: of Illumina (--min-windows 14 --pair-rule "
            "together), of Nanopore or PacBio (--min-windows 5 --min-fraction 0.02). An option "
            "given beside it wins.",
        ),
    ] = None,
    min_windows: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="A read is on target if at least this number of its windows match one target "
            "(default: 1),",
        ),
    ] = None,
    min_fraction: Annotated[
        float | None,
        typer.Option(
            min=0,
            max=1,
            help="and at least this fraction of its windows without a gap code (default: 0).",
        ),
    ] = None,
    pairs: Annotated[
        bool,
        typer.Option(
            "--pairs",
            help="Files come as R1 R2, R1 R2, ...; a pair is on target if either read is.",
        ),
    ] = False,
    interleaved: Annotated[
        bool | None,
        typer.Option(
            help="Mates follow each other in each file. Default: by the first names of the files."
        ),
    ] = None,
    pair_rule: Annotated[
        Literal["either", "together"] | None,
        typer.Option(
            help="A pair is on target if either read is (default), or if both together are: by "
            "the distinct matching windows of both, against all their windows.",
        ),
    ] = None,
    output: Annotated[
        str | None,
        typer.Option(
            "-o",
            "--output",
            metavar="FILE",
            help="Write the records there once all are read, instead of to standard output; "
            ".gz, .bgz, .bz2, .xz, .zst: compressed; .sam, .bam, .cram: from such files.",
        ),
    ] = None,
    output2: Annotated[
        str | None,
        typer.Option(
            metavar="FILE", help="For R2; without it the records of a pair follow each other."
        ),
    ] = None,
    removed: Annotated[
        str | None, typer.Option(metavar="FILE", help="Write the other reads there.")
    ] = None,
    removed2: Annotated[
        str | None, typer.Option(metavar="FILE", help="For R2 of the other reads.")
    ] = None,
    summary: Annotated[
        str | None,
        typer.Option(
            metavar="FILE", help="Reads and bases in and out, by target and barcode, as JSON."
        ),
    ] = None,
    level: Annotated[
        int | None,
        typer.Option(min=0, max=19, help="Compression of the outputs; default: a fast one."),
    ] = None,
    rename: Annotated[
        bool, typer.Option("--rename", help="Name the reads 1, 2, 3, ... in each output.")
    ] = False,
    samples: Annotated[
        str | None,
        typer.Option(
            metavar="TSV",
            help="Filter many samples: columns sample, reads1, output1 and, if wanted, reads2, "
            "output2, removed, removed2. Lines of one sample are its lanes.",
        ),
    ] = None,
    watch: Annotated[
        str | None,
        typer.Option(
            "--watch",
            metavar="DIR",
            help="Filter files as a sequencer writes them there, each to the same path in the "
            "folder of -o (and --removed), until the run is over.",
        ),
    ] = None,
    settle: choices.SettleOption = None,
    until: choices.UntilOption = None,
    strands: Annotated[
        Strands | None,
        typer.Option(help="Which orientations are one k-mer. Default: canonical, or the index's."),
    ] = None,
    device: choices.DeviceOption = "auto",
    threads: choices.ThreadsOption = 0,
    profile: choices.ProfileOption = False,
    quiet: choices.QuietOption = False,
) -> None:
    """Write the reads that match a dictionary (--keep), or those that do not (--deplete).

    Records stay as they are, byte for byte, and in order. With -o nothing is written if a file is
    faulty.
    """
    if keep == deplete:
        raise UsageError("give either --keep or --deplete")
    reads = reads or []
    others = {"--output2": output2, "--removed": removed, "--removed2": removed2}
    if sum([bool(reads), samples is not None, watch is not None]) != 1:
        raise UsageError("give READS, or --samples, or --watch")
    choices.check_watch_options(watch, settle=settle, until=until)
    if watch is not None:
        choices.check_watched(watch, {"-o": output, "--removed": removed})
        if pairs or output2 or removed2:
            raise UsageError("--watch tells R1 and R2 by the names of the files: give neither")
    if samples is not None and (pairs or any(path for path in (output, *others.values()))):
        raise UsageError("--samples names the outputs, and R2 of pairs, in its table")
    if pairs and len(reads) % 2:
        raise UsageError(f"--pairs needs files as R1 R2: {len(reads)} were given")
    if pairs and interleaved:
        raise UsageError("give either --pairs or --interleaved")
    if [*reads, *dictionary].count("-") > 1:
        raise UsageError("standard input (-) can be read only once")
    dictionary = choices.files_of_dictionary(dictionary, quiet=quiet)
    inputs = [*reads, *dictionary, *(path for path in (samples, targets) if path is not None)]
    files = {"--summary": summary} | (others if watch is None else {})
    choices.check_files(inputs, output if watch is None else None, files)
    k, strands = choices.k_and_strands(k, strands, dictionary)

    from streamer.cli.filter_files import FilterRun, filter_files
    from streamer.cli.filter_samples import read_samples
    from streamer.matching.reports import Assignment
    from streamer.matching.spec import MatchSpec

    windows, fraction, together = _PRESETS[preset]
    if pair_rule is not None:
        together = pair_rule == "together"
    spec = MatchSpec.of(
        k=k, sources=tuple(dictionary), targets=targets, target_by=target_by, strands=strands,
        threads=threads, device=device,
    )  # fmt: skip
    rule = Assignment(
        windows if min_windows is None else min_windows,
        fraction if min_fraction is None else min_fraction,
    )
    run = FilterRun(
        reads, spec, keep, rule, pairs, interleaved, together, output, output2, removed, removed2,
        summary, level, rename, preset is not None,
    )  # fmt: skip
    if watch is not None:
        from streamer.cli.filter_folder import filter_folder

        filter_folder(
            run, watch, SETTLE_SECONDS if settle is None else settle, until, quiet=quiet,
            profile=profile,
        )  # fmt: skip
        return
    runs = [run] if samples is None else read_samples(samples, run)
    compressed = [one.check_outputs() for one in runs]
    if level is not None and not any(compressed):
        raise UsageError("--level needs an output that is compressed")
    filter_files(runs, quiet=quiet, profile=profile)
