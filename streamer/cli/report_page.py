"""``streamer report``: files of rows or a journal in, a page and MultiQC's file out."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Iterable
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import PurePath
from typing import TYPE_CHECKING, Annotated, Any

import typer

from streamer.cli import choices
from streamer.cli.daemon_options import ConfigOption
from streamer.errors import UsageError
from streamer.matching.spec import TargetBy
from streamer.output.output_file import OutputFiles

if TYPE_CHECKING:
    from streamer.reporting.collection import Source
    from streamer.reporting.kept_reads import Recount


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
        choices.dictionary_option(
            help="Sources of a journal, if not where the daemon read them; may be repeated."
        ),
    ] = None,
    targets: choices.TargetsOption = None,
    target_by: Annotated[
        TargetBy | None, typer.Option(help="For a journal: if not as its daemon does.")
    ] = None,
    sample_sheet: choices.SampleSheetOption = None,
    panel: choices.PanelOption = None,
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
    threads: choices.ThreadsOption = 0,
    quiet: choices.QuietOption = False,
) -> None:
    """Make one HTML page of reports, or of what a daemon has matched.

    The page is self-contained. With --config it is about the journal of that daemon, by its table
    answers, panel and samples; the daemon may be running.
    """
    sources: tuple[str, ...] = ()
    run = ""
    if targets is not None or target_by is not None:
        names: tuple[str, ...] = targets or "", target_by or "record"
    else:
        names = ()
    if config is not None:
        from streamer.daemon.config import load

        loaded = load(config, check_files=False)
        journal = loaded.journal
        named = "durability" in journal.model_fields_set
        if not files and named and journal.durability == "none":
            raise UsageError(
                f"{config}: this daemon keeps no journal (journal.durability = 'none')"
            )
        files = files or [journal.directory]
        sources = tuple(loaded.dictionary.sources)
        names = names or (loaded.dictionary.targets, loaded.dictionary.target_by)
        min_windows = loaded.answers.min_windows if min_windows is None else min_windows
        min_fraction = loaded.answers.min_fraction if min_fraction is None else min_fraction
        panel = panel or (config if loaded.panel.limits else None)
        sample_sheet = sample_sheet or loaded.samples.sheet or None
        run = loaded.samples.run
    if not files:
        raise UsageError("name the files of reports, a journal folder, or --config")

    from streamer.matching.reports import Assignment
    from streamer.reporting.collection import Collection
    from streamer.reporting.kept_reads import Recount, is_journal
    from streamer.reporting.multiqc import multiqc, multiqc_path
    from streamer.reporting.page import page
    from streamer.reporting.reports import TargetReport

    aside = None if output == "-" else multiqc_path(output)
    dictionary = choices.files_of_dictionary(dictionary or (), quiet=quiet)
    inputs = [*files, *dictionary, *filter(None, (targets, sample_sheet, panel))]
    choices.check_files(inputs, output, {"the file for MultiQC": aside})
    journals = any(map(is_journal, files))
    asked = {"--dictionary": dictionary or None, "--targets": targets, "--target-by": target_by,
             "--min-windows": min_windows, "--config": config,
             "--min-fraction": min_fraction}  # fmt: skip
    for option, value in asked.items():
        if value is not None and not journals:
            raise UsageError(f"{option} is for a journal, and none is given")
    rule = Assignment(min_windows or 1, min_fraction or 0.0)
    sheet, judging = choices.sheet_and_panel(sample_sheet, panel)
    run = run or ("" if sheet is None else sheet.run)
    recount = Recount(tuple(dictionary or sources), names, rule, bins, threads, sheet)
    shown = _names(files)
    read = [_source(path, shown[path], recount, quiet=quiet) for path in files]
    for source in read if run else ():
        source.facts[:] = dict.fromkeys([("run", run), *source.facts])
    for each in (made for source in read for made in source.reports):
        if isinstance(each, TargetReport):
            each.attach(sheet, judging)
    name = "report" if output == "-" else PurePath(output).name.split(".")[0]
    collection = Collection(title or name, read, None if judging is None else judging.rule())
    html = page(collection, [("command line", f"streamer {_without_folders(choices.WORDS.get())}")])
    with OutputFiles() as outputs:
        outputs.open(output).write(html.encode("utf-8", "replace"))
        if aside is not None:
            table = multiqc(collection, title or name)
            outputs.open(aside).write(table.encode("utf-8", "replace"))


def _without_folders(words: Iterable[str]) -> str:
    """Words of a command without the folders of files, which may be private."""
    return " ".join(PurePath(word).name if os.sep in word else word for word in words)


def _names(paths: list[str]) -> dict[str, str]:
    """Names for the page: without their folders, which may be private, if they stay distinct."""
    from streamer.sequences.source import STDIN, shown_name

    short = {path: PurePath(path).name or path for path in paths if path != STDIN}
    counts = Counter(short.values())
    return {
        path: shown_name(path) if path == STDIN or counts[short[path]] > 1 else short[path]
        for path in paths
    }


def _source(path: str, name: str, recount: Recount, *, quiet: bool) -> Source:
    """The reports of one input: a journal, or the rows of a report."""
    from xopen import xopen

    from streamer.cli.streams import progress
    from streamer.matching.panel import Panel
    from streamer.reporting.collection import Source, of_journal, read_report
    from streamer.reporting.kept_reads import count_again, is_journal
    from streamer.reporting.reports import TargetReport
    from streamer.sequences.source import STDIN, shown_name, size_of_files
    from trie.cpu.compiling import compile_notice

    if is_journal(path):
        with compile_notice(quiet=quiet), progress("counting", 100, quiet=quiet, unit="share") as s:
            return of_journal(name, count_again(path, recount, s))
    packed = False
    with ExitStack() as stack:
        opened: Any = sys.stdin.buffer
        if path != STDIN:
            with open(path, "rb") as raw:
                packed = raw.seekable() and raw.read(1) not in (b"#", b"{", b"")
            opened = stack.enter_context(xopen(path, "rb", threads=0))
        total = None if packed else size_of_files([path])
        show = stack.enter_context(progress(f"reading {name}", total, quiet=quiet))
        read = read_report(opened, shown_name(path), show)
    if isinstance(read.report, TargetReport) and "positive" in read.facts:
        read.report.panel = Panel(positive=read.facts["positive"].split(" | "))
    facts = [(key, _without_folders(value.split())) for key, value in read.facts.items()]
    facts.append(("lines", f"{read.lines:,}"))
    facts.append(("bytes of text", f"{read.bytes:,}"))
    if path != STDIN:
        changed = datetime.fromtimestamp(os.stat(path).st_mtime, UTC)
        facts.append(("last changed", f"{changed:%Y-%m-%d %H:%M} UTC"))
    return Source(name, f"rows of --report {read.kind}", [read.report], facts)
