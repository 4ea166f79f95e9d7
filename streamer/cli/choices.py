"""Options, arguments and messages that commands share, and checks of the files they name."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from streamer import __version__
from streamer.errors import StreamerError, UsageError, printable, warn
from streamer.matching.spec import Device, TargetBy
from streamer.output.output_file import RowsFormat
from trie.new_file import check_new_file
from trie.strands import Strands

if TYPE_CHECKING:
    from streamer.matching.panel import Panel
    from streamer.sequences.sample_sheet import SampleSheet

FormatChoice = Literal["tsv", "jsonl"]

SENT_BASES, SENT_READS = 4_000_000, 32_000
"""The most bases of a batch that ``send`` makes, except for its last read."""

READS = "FASTA, FASTQ, SAM, BAM or CRAM, plain or compressed; - is standard input."

dictionary_option = partial(typer.Option, "--dictionary", "-d", metavar="FASTX|FOLDER")

TargetsOption = Annotated[
    str | None,
    typer.Option(
        "--targets",
        metavar="TSV",
        help="Names of targets: columns source (a record or a file), target and perhaps group.",
    ),
]
TargetByOption = Annotated[
    TargetBy, typer.Option("--target-by", help="What is a target if --targets does not name it.")
]


def _with_context(device: Device) -> Device:
    """Let the driver begin, where a GPU is asked for, while everything else is imported."""
    if device == "cuda":
        from gpu.card.device import begin_context

        begin_context()
    return device


DeviceOption = Annotated[
    Device, typer.Option("--device", help="Where to run.", callback=_with_context)
]
GpusOption = Annotated[
    int, typer.Option("--gpus", min=0, max=64, help="GPUs to use at most; 0 is all.")
]
ThreadsOption = Annotated[
    int,
    typer.Option(
        "--threads",
        min=0,
        help="CPU threads; 0 is every core. More than one per core (or 8) are not started.",
    ),
]
ClusterOption = Annotated[
    str | None,
    typer.Option(
        "--cluster",
        metavar="local|ADDRESS",
        help="Run on Ray: a cluster on this machine, or the one at HOST:PORT. Same rows.",
    ),
]
ProfileOption = Annotated[
    bool, typer.Option("--profile", help="Show on standard error where the time went.")
]
SettleOption = Annotated[
    float | None,
    typer.Option(
        "--settle",
        min=0.0,
        metavar="SECONDS",
        help="With --watch: without change for so long, a file is complete; by default 5.",
    ),
]
UntilOption = Annotated[
    list[str] | None,
    typer.Option(
        "--until",
        metavar="PATTERN",
        help="With --watch: the name of a file that ends the run; may be repeated; by default "
        "final_summary* and RTAComplete*.",
    ),
]
FormatOption = Annotated[FormatChoice, typer.Option("--format", help="Format of the rows.")]


RowsFormatOption = Annotated[
    RowsFormat | None,
    typer.Option(
        "--format", help="Format of the rows. Default: by the suffix of FILE (-o), else tsv."
    ),
]
OutputOption = Annotated[
    str | None,
    typer.Option(
        "-o",
        "--output",
        metavar="FILE",
        help="Write rows there once they are complete; .gz, .bgz, .bz2, .xz, .zst: compressed.",
    ),
]

HeaderOption = Annotated[
    Literal["hash", "plain"],
    typer.Option("--header", help="Header of TSV: with a # before the first name, or without."),
]
CommentsOption = Annotated[
    bool,
    typer.Option(
        "--comments",
        help="Before the header of TSV, lines ## KEY: VALUE: command, version, k, sources.",
    ),
]

QuietOption = Annotated[bool, typer.Option("--quiet", "-q", help="Only errors on standard error.")]


SampleSheetOption = Annotated[
    str | None,
    typer.Option(
        "--sample-sheet",
        metavar="FILE",
        help="Of MinKNOW or Illumina: for rows by barcode, whose samples and controls it names.",
    ),
]
PanelOption = Annotated[
    str | None,
    typer.Option(
        "--panel",
        metavar="FILE",
        help="A verdict for each target and sample, by table panel of this configuration.",
    ),
]

KmerLengthOption = Annotated[
    int | None,
    typer.Option(
        "-k", min=1, max=31, help="Length of a k-mer, 1 to 31. Default: that of the index."
    ),
]


def files_of_dictionary(paths: Sequence[str], *, quiet: bool) -> list[str]:
    """The files that stand for --dictionary: those of folders and of patterns, too."""
    from streamer.sequences.files import reference_files

    return reference_files(paths, None if quiet else say)


def k_and_strands(
    k: int | None, strands: Strands | None, sources: Sequence[str], *, near: bool = False
) -> tuple[int, Strands | None]:
    """The options, where they are not given those of an index among the sources.

    near: the index decides only k. UsageError without either.
    """
    from trie.index.index_file import IndexFileError, facts_of

    if k is None or (strands is None and not near):
        for path in sources:
            try:
                facts = facts_of(path)
            except IndexFileError as error:
                raise StreamerError(str(error)) from error
            if facts is not None:
                k = k or int(facts["k"])
                return k, strands or (None if near else facts["strands"])
    if k is None:
        raise UsageError("Missing option '-k'.")
    return k, strands


WORDS = ContextVar[Sequence[str]]("WORDS", default=())
"""The words of the command line that runs."""


def name_provenance(
    command: str,
    k: int | None,
    sources: Sequence[str | None],
    header: str,
    comments: bool,
    more: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Let the rows of this command name what made them. Sources: files, or None."""
    from streamer.output.rows import PROVENANCE, Provenance, time_now

    facts = {"command": command, "version": __version__}
    facts |= {} if k is None else {"k": str(k)}
    facts["sources"] = " ".join(filter(None, sources))
    if comments:
        line = printable(f"streamer {shlex.join(WORDS.get())}")
        facts |= {"command line": line, "date": time_now()}
    facts |= more
    PROVENANCE.set(Provenance(facts, comments, header == "plain"))


def sheet_and_panel(
    sheet: str | None, panel: str | None
) -> tuple[SampleSheet | None, Panel | None]:
    """Read the files of --sample-sheet and --panel; raises SampleSheetError or ConfigError."""
    read, judging = None, None
    if sheet is not None:
        from streamer.sequences.sample_sheet import SampleSheet

        read = SampleSheet.read(sheet)
    if panel is not None:
        from streamer.daemon.config import load_panel
        from streamer.matching.panel import Panel

        judging = Panel(**load_panel(panel))
        if not judging.limits:
            raise UsageError(f"--panel {panel}: its table panel has no threshold: set enough_reads")
        if judging.control_factor and (read is None or not read.negative):
            name = "--sample-sheet" if read is None else f"--sample-sheet {sheet}"
            raise UsageError(f"panel.control_factor needs a negative control: {name} has none")
    return read, judging


def say(line: str) -> None:
    """Write a line of the program to standard error, with its control characters escaped."""
    typer.echo(f"streamer: {printable(line)}", err=True)


def say_error(line: str) -> None:
    """Write an error as one line to standard error."""
    say("error: " + " ".join(line.split()))


_LOOKED_AT = 8
"""The first and the last files of reads, this many, whose format is looked up."""


def check_files(
    inputs: Sequence[str], output: str | None, files: Mapping[str, str | None] | None = None
) -> None:
    """Check that inputs exist, outputs can be written, and no file has two uses.

    ``output`` is where the rows go, ``files`` the other outputs by their options.
    """
    from streamer.sequences.files import check_exist
    from streamer.sequences.source import STDIN

    files = files or {}
    outputs = [output, *files.values()]
    if "" in (*inputs, *outputs):
        raise UsageError("the name of a file is empty")
    if inputs.count(STDIN) > 1:
        raise UsageError("standard input (-) can be read only once")
    check_exist(inputs)
    existing = [path for path in outputs if path and os.path.isfile(path)]
    for written in existing:
        if any(path != STDIN and os.path.samefile(path, written) for path in inputs):
            raise UsageError(f"{written}: input and output are the same file")
    for option, file in files.items():
        if file == "-":
            raise UsageError(f"{option} -: rows go to standard output; name a file")
        if file and output in (None, "-") and _is_standard_output(file):
            raise UsageError(f"{option} {file}: rows go to standard output; name another file")
    _check_outputs([path for path in outputs if path and path != "-"])


def check_watch_options(watch: str | None, **options: object) -> None:
    """UsageError for an option that is given without ``--watch``."""
    for option, value in options.items():
        if value is not None and not watch:
            raise UsageError(f"--{option} goes with --watch")


def check_watched(watched: str, outputs: Mapping[str, str | None]) -> None:
    """UsageError for a folder of outputs that is missing, a file, or within another one.

    outputs: by their options, of which the first is needed.
    """
    places = {"--watch": os.path.realpath(watched)}
    for option, path in outputs.items():
        if not path or path == "-":
            if option == next(iter(outputs)):
                raise UsageError(f"--watch needs {option}, a folder for the files that it writes")
            continue
        if os.path.exists(path) and not os.path.isdir(path):
            raise UsageError(f"{option} {path}: is not a folder")
        place = os.path.realpath(path)
        for other, known in places.items():
            if os.path.commonpath([place, known]) in (place, known):
                raise UsageError(f"{option} {path}: is within the folder of {other}, or around it")
        places[option] = place


def check_different(paths: Sequence[str]) -> None:
    """UsageError if one of the files is given twice, perhaps by another name."""
    known: dict[tuple[int, int], str] = {}
    for path in filter(os.path.isfile, paths):
        status = os.stat(path)
        place = status.st_dev, status.st_ino
        if place in known:
            raise UsageError(
                f"{path} and {known[place]} are the same file: give R1 and R2 of each pair"
            )
        known[place] = path


def warn_of_references(reads: Sequence[str]) -> None:
    """Warn of FASTA among other reads: people give further dictionary files after one ``-d``."""
    from streamer.sequences.source import is_fasta

    some = (*reads[:_LOOKED_AT], *reads[_LOOKED_AT:][-_LOOKED_AT:])
    kinds = {path: is_fasta(path) for path in some if os.path.isfile(path)}
    if len(set(kinds.values())) == 2:
        first = next(path for path in kinds if kinds[path])
        warn(
            f"{first} is FASTA and is matched as reads, as other files are: "
            "each file of a dictionary needs its own -d"
        )


def _check_outputs(paths: list[str]) -> None:
    real = [os.path.realpath(path) for path in paths]
    for path, place in zip(paths, real, strict=True):
        if real.count(place) > 1:
            raise UsageError(f"{path}: is named for two outputs")
        try:
            check_new_file(path)
        except OSError as error:
            raise StreamerError(f"{path}: cannot write: {error.strerror}") from error


def _is_standard_output(path: str) -> bool:
    """Whether a file is standard output: /dev/stdout, or the file it was redirected to."""
    try:
        place = os.stat(path)
        ours = os.fstat(sys.stdout.fileno())
    except (OSError, ValueError):
        # the file does not exist, or standard output is not a file
        return False
    # both may write to /dev/null
    return os.path.samestat(place, ours) and not os.path.samestat(place, os.stat(os.devnull))
