"""``streamer filter``: reads of files that match a dictionary, or those that do not."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from streamer.cli import choices
from streamer.errors import UsageError
from streamer.output.output_file import ALIGNMENTS, check_record_output, suffix_of
from trie.strands import Strands

_OTHERS = (
    ".arrow", ".parquet", ".tsv", ".csv", ".json", ".jsonl", ".zip", ".lz4", ".lzma", ".br", ".z",
)  # fmt: skip
"""Suffixes of formats that are not written."""


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
    min_windows: Annotated[
        int,
        typer.Option(
            min=1,
            help="A read is on target if at least this number of its windows match one target,",
        ),
    ] = 1,
    min_fraction: Annotated[
        float,
        typer.Option(
            min=0, max=1, help="and at least this fraction of its windows without a gap code."
        ),
    ] = 0.0,
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
        Literal["either", "together"],
        typer.Option(
            help="A pair is on target if either read is, or if both together are: by the distinct "
            "matching windows of both, against all their windows.",
        ),
    ] = "either",
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
    if (samples is None) != bool(reads):
        raise UsageError("give READS, or --samples")
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
    choices.check_files(inputs, output, others | {"--summary": summary})
    k, strands = choices.k_and_strands(k, strands, dictionary)

    from streamer.cli.filter_files import FilterRun, filter_files
    from streamer.cli.filter_samples import read_samples
    from streamer.matching.reports import Assignment
    from streamer.matching.spec import MatchSpec

    spec = MatchSpec.of(
        k=k, sources=tuple(dictionary), targets=targets, target_by=target_by, strands=strands,
        threads=threads, device=device,
    )  # fmt: skip
    run = FilterRun(
        reads, spec, keep, Assignment(min_windows, min_fraction), pairs, interleaved,
        pair_rule == "together", output, output2, removed, removed2, summary, level, rename,
    )  # fmt: skip
    runs = [run] if samples is None else read_samples(samples, run)
    written = [path for one in runs for path in one.outputs]
    for path in written:
        if suffix_of(path) in _OTHERS:
            raise UsageError(
                f"{path}: FASTQ, FASTA, SAM, BAM and CRAM are written, not {suffix_of(path)}: "
                "rename it"
            )
        if rename and suffix_of(path) in ALIGNMENTS:
            raise UsageError(f"--rename: {path}: only FASTQ and FASTA are renamed")
    compressed = [check_record_output(path, level) for path in written]
    if level is not None and not any(compressed):
        raise UsageError("--level needs an output that is compressed")
    filter_files(runs, quiet=quiet, profile=profile)
