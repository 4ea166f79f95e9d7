"""``streamer match``: exact and approximate matching of read files against a dictionary."""

from typing import Annotated, Literal

import typer

from streamer.cli import choices
from streamer.errors import UsageError
from streamer.matching.spec import DEFAULT_CHUNK, Kernel, MatchSpec, Mode, Semantics
from streamer.output.output_file import compression_of, line_format, rows_format
from trie.new_file import check_regular_file
from trie.strands import Strands

ReportName = Literal[
    "windows", "intervals", "reads", "targets", "coverage", "novelty", "all", "best"
]

NEAR_REPORTS = ("all", "best")
TOTALS = ("targets", "coverage")
DEFAULT_BINS = 100

_FAULTS = {
    "kernel": "--kernel {kernel} is not for {what}: {names}",
    "distance": "--distance {distance} must be less than k (-k {k})",
    "strands": "--strands {strands} has no meaning with a distance: forward or both",
    "device": "--kernel {kernel} runs on CUDA, not with --device {device}",
    "chunk": "--chunk {chunk} is shorter than a k-mer (-k {k})",
}
"""The faults of ``MatchSpec.faults``, in words for users."""


def match(
    reads: Annotated[list[str], typer.Argument(metavar="READS", help=choices.READS)],
    k: choices.KmerLengthOption = None,
    dictionary: Annotated[
        list[str] | None,
        choices.dictionary_option(help="Targets, or an index of them; may be given again."),
    ] = None,
    targets: choices.TargetsOption = None,
    target_by: choices.TargetByOption = "record",
    seed: Annotated[
        int | None,
        typer.Option(
            min=0, help="Start from the k-mers in this number of first bases of the reads."
        ),
    ] = None,
    report: Annotated[
        ReportName | None,
        typer.Option(
            help="One row for each of these (coverage: for each part of a target; novelty: new "
            "k-mers against bases, at 512 points at most); with a distance all ends or the best of "
            "each cluster. Default: intervals, with a distance all."
        ),
    ] = None,
    min_windows: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="For targets: a read is on target if at least this number of its windows match "
            "the target. Default: 1.",
        ),
    ] = None,
    min_fraction: Annotated[
        float | None,
        typer.Option(
            min=0,
            max=1,
            help="For targets: and at least this fraction of its windows without a gap code. "
            "Default: 0.",
        ),
    ] = None,
    by: Annotated[
        Literal["barcode", "group"] | None,
        typer.Option(
            help="For targets and coverage: all rows for each barcode, from the headers or tags of "
            "the reads or the folders of the files; or rows of groups of targets."
        ),
    ] = None,
    sample_sheet: choices.SampleSheetOption = None,
    panel: choices.PanelOption = None,
    bins: Annotated[
        int | None, typer.Option(min=1, help="For coverage: rows a target. Default: 100.")
    ] = None,
    mode: Annotated[
        Mode | None, typer.Option(help="Default: frozen with --dictionary, grow with --seed.")
    ] = None,
    strands: Annotated[
        Strands | None,
        typer.Option(
            help="Which orientations are one k-mer. Default: canonical; with a distance both, "
            "for ltb forward."
        ),
    ] = None,
    max_kmers: Annotated[
        int,
        typer.Option(
            min=0,
            help="Stop adding k-mers once the dictionary holds this many, after the batch (as "
            "send makes them) that reached it; 0: never.",
        ),
    ] = 0,
    distance: Annotated[
        int | None,
        typer.Option(
            "--distance",
            "-D",
            min=0,
            max=4,
            help="Find k-mers within this number of edits, less than k.",
        ),
    ] = None,
    semantics: Annotated[
        Semantics | None,
        typer.Option(
            help="What a distance means: levenshtein (default) or ltb, the automaton of the "
            "Levenshtein Tree Bitmap."
        ),
    ] = None,
    kernel: Annotated[
        Kernel,
        typer.Option(
            help="index, or walk over the Tree Bitmap; on CUDA shuffle, naive, buckets too. "
            "With a distance: pieces or lanes; ltb: sliced, on CUDA ltb-... Equal results."
        ),
    ] = "auto",
    chunk: Annotated[
        int, typer.Option(min=1, help="Bases in a chunk of the stream, at least k.")
    ] = DEFAULT_CHUNK,
    device: choices.DeviceOption = "auto",
    gpus: choices.GpusOption = 0,
    streams: Annotated[
        int, typer.Option(min=1, max=8, help="CUDA streams; 1 is the serial loop.")
    ] = 2,
    threads: choices.ThreadsOption = 0,
    cluster: choices.ClusterOption = None,
    profile: choices.ProfileOption = False,
    format_: choices.RowsFormatOption = None,
    output: choices.OutputOption = None,
    header: choices.HeaderOption = "hash",
    comments: choices.CommentsOption = False,
    save: Annotated[
        str | None, typer.Option(metavar="FILE", help="Write the dictionary as it is at the end.")
    ] = None,
    quiet: choices.QuietOption = False,
) -> None:
    """Match reads against a dictionary of k-mers, exactly or within a distance.

    The dictionary is every window of the FASTX records (--dictionary), or grows from the
    reads themselves (--seed). Rows go to standard output.
    """
    if (dictionary is None) == (seed is None):
        raise UsageError("give either --dictionary FASTX or --seed N")
    if dictionary is None and (targets is not None or target_by != "record"):
        raise UsageError("--targets and --target-by need --dictionary")
    near = _within(report, distance, semantics)
    if dictionary is not None:
        dictionary = choices.files_of_dictionary(dictionary, quiet=quiet)
    k, strands = choices.k_and_strands(k, strands, dictionary or (), near=near)
    spec = MatchSpec.of(
        k=k,
        sources=tuple(dictionary or ()),
        targets=targets,
        target_by=target_by,
        seed_bases=seed,
        mode=mode,
        max_kmers=max_kmers,
        strands=strands,
        exact=not near,
        counted=report in TOTALS,
        distance=(distance or 0) if near else None,
        semantics=semantics,
        kernel=kernel,
        chunk=chunk,
        threads=threads,
        device=device,
        streams=streams,
    )
    for option, value, belongs_to in (
        ("--min-windows", min_windows, ("targets",)),
        ("--min-fraction", min_fraction, ("targets",)),
        ("--by", by, ("targets", "coverage")),
        ("--sample-sheet", sample_sheet, ("targets", "coverage")),
        ("--panel", panel, ("targets",)),
        ("--bins", bins, ("coverage",)),
    ):
        if value is not None and report not in belongs_to:
            raise UsageError(f"{option} needs --report {' or '.join(belongs_to)}")
    if max_kmers and not spec.changes:
        raise UsageError("--max-kmers needs a dictionary that grows: --mode grow or --seed")
    if report == "novelty" and not spec.changes:
        raise UsageError("--report novelty needs a dictionary that grows: --mode grow or --seed")
    if cluster is not None and profile:
        raise UsageError(
            "--profile does not work with --cluster: it shows the time spent on this machine"
        )
    for fault in spec.faults():
        what = f"--semantics {spec.semantics}" if near else "exact matching"
        values = {name: getattr(spec, name) for name in spec.__slots__}
        raise UsageError(_FAULTS[fault].format(what=what, names=", ".join(spec.kernels), **values))
    if [*reads, *spec.sources].count("-") > 1:
        raise UsageError("standard input (-) can be read only once")
    named = [targets] if targets is not None else []
    choices.check_files([*reads, *spec.sources, *named], output, {"--save": save})
    format_ = rows_format(format_, output)
    if sample_sheet is not None and by == "group":
        raise UsageError("--sample-sheet is for rows by barcode, --by group has none")
    sheet, judging = choices.sheet_and_panel(sample_sheet, panel)
    sources = [*(dictionary or ()), *reads]
    rules = {} if judging is None else {"rule": judging.rule()}
    if judging is not None and judging.positive:
        rules["positive"] = " | ".join(judging.positive)
    if comments:
        rules |= {"reference": " ".join(spec.sources)} | ({"run": sheet.run} if sheet else {})
    choices.name_provenance("match", k, sources, header, comments, rules)
    if judging is not None and not quiet:
        choices.say(judging.rule())
    if spec.sources and len(reads) > 1:
        choices.warn_of_references(reads)
    if save is not None:
        if compression_of(save) is not None:
            raise UsageError(f"--save {save}: a dictionary is not compressed; leave out the suffix")
        check_regular_file(save)
    ltb = near and spec.semantics == "ltb"
    name = "ltb" if ltb else report or ("all" if near else "intervals")
    from streamer.cli.match_files import Asked, match_files, match_on_cluster
    from streamer.matching.reports import Assignment

    rule = Assignment(min_windows or 1, min_fraction or 0.0)
    by = by or (None if sheet is None else "barcode")
    asked = Asked(name, rule, bins or DEFAULT_BINS, by, sheet, judging)
    if cluster is not None and spec.changes:
        if not quiet:
            choices.say(
                "a growing dictionary depends on the order of reads: matching without the cluster"
            )
    elif cluster is not None:
        lines = line_format(format_, "--cluster")
        match_on_cluster(cluster, reads, spec, asked, lines, output, save, quiet=quiet)
        return
    match_files(reads, spec, asked, format_, output, save, quiet=quiet, profile=profile, gpus=gpus)


def _within(report: ReportName | None, distance: int | None, semantics: Semantics | None) -> bool:
    """Whether the report is of matches within a distance; UsageError for conflicting options."""
    if report is not None and report not in NEAR_REPORTS:
        if distance or semantics == "ltb":
            raise UsageError(f"--report {report} is of exact matching; with a distance: all, best")
        return False
    near = distance is not None or semantics is not None
    if report is not None and not near:
        raise UsageError(f"--report {report} needs --distance")
    if report == "best" and semantics == "ltb":
        raise UsageError(
            "--report best is not for --semantics ltb, whose ends have several distances"
        )
    return near
