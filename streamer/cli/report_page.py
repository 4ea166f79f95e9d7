"""``streamer report``: files of rows or a journal in, a page and MultiQC's file out."""

from __future__ import annotations

from typing import Annotated

import typer

from streamer.cli.choices import QuietOption, ThreadsOption, check_files, dictionary_option
from streamer.cli.daemon_options import ConfigOption
from streamer.errors import UsageError


def report(
    output: Annotated[
        str,
        typer.Option(
            "-o",
            "--output",
            metavar="FILE",
            help="The page; NAME_mqc.json for MultiQC goes beside NAME.html. -: standard output, "
            "the page alone.",
        ),
    ],
    files: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="FILE...",
            help="Rows of match --report targets, coverage, reads or novelty (TSV or jsonl, plain "
            "or compressed; - is standard input), or the journal folder of a daemon.",
        ),
    ] = None,
    title: Annotated[
        str | None,
        typer.Option(metavar="TEXT", help="Title of the page. Default: the name of the output."),
    ] = None,
    config: ConfigOption = None,
    dictionary: Annotated[
        list[str] | None,
        dictionary_option(
            help="Sources of a journal, if not where the daemon read them; may be repeated."
        ),
    ] = None,
    min_windows: Annotated[
        int | None,
        typer.Option(min=1, help="For a journal: a read is on target from this many windows. [1]"),
    ] = None,
    min_fraction: Annotated[
        float | None,
        typer.Option(min=0, max=1, help="And from this share of its windows. [0]"),
    ] = None,
    bins: Annotated[
        int, typer.Option(min=1, max=10_000, help="For a journal: parts of a target.")
    ] = 100,
    threads: ThreadsOption = 0,
    quiet: QuietOption = False,
) -> None:
    """Make one HTML page of reports, or of what a daemon has matched.

    The page is self-contained. With --config it is about the journal of that daemon, by its table
    answers; the daemon may be running.
    """
    sources: tuple[str, ...] = ()
    if config is not None:
        from streamer.daemon.config import load

        loaded = load(config, check_files=False)
        files = files or [loaded.journal.directory]
        sources = tuple(loaded.dictionary.sources)
        min_windows = loaded.answers.min_windows if min_windows is None else min_windows
        min_fraction = loaded.answers.min_fraction if min_fraction is None else min_fraction
    if not files:
        raise UsageError("name the files of reports, a journal folder, or --config")

    from streamer.cli.report_files import PageOptions, write_report
    from streamer.matching.reports import Assignment
    from streamer.reporting.kept_reads import Recount, is_journal
    from streamer.reporting.multiqc import multiqc_path

    aside = None if output == "-" else multiqc_path(output)
    check_files([*files, *(dictionary or ())], output, {"the file for MultiQC": aside})
    journals = any(map(is_journal, files))
    asked = {"--dictionary": dictionary, "--min-windows": min_windows, "--config": config,
             "--min-fraction": min_fraction}  # fmt: skip
    for option, value in asked.items():
        if value is not None and not journals:
            raise UsageError(f"{option} is for a journal, and none is given")
    rule = Assignment(min_windows or 1, min_fraction or 0.0)
    recount = Recount(tuple(dictionary or sources), rule, bins, threads)
    write_report(PageOptions(files, output, aside, title, recount), quiet=quiet)
