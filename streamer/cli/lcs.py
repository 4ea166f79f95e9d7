"""``streamer lcs``: the longest common subsequence of two sequences (LCS paper)."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from streamer.cli import choices, cost_model
from streamer.cli.choices import check_files, say
from streamer.errors import DataError, UsageError, printable
from streamer.output.output_file import rows_format, write_file
from trie.cpu.compiling import compile_notice

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from streamer.batch.lcs import Matching
    from streamer.batch.records import NamedSequence
    from streamer.output.text_table import Rows

COLUMNS = ("a", "b", "length_a", "length_b", "lcs")
IDENTITY_COLUMNS = ("identity", "column_identity")
LINE = 80
"""Letters in a line of FASTA."""

NO_QUALITY = 255
"""The mapping quality in PAF that means none."""

LcsMethod = Literal[
    "adaptive", "systolic", "diff", "bit-parallel", "block-step", "hirschberg", "dp"
]


def lcs(
    a: Annotated[
        str,
        typer.Argument(
            metavar="A", help="FASTA, FASTQ, SAM, BAM or CRAM with one record; - is standard input."
        ),
    ],
    b: Annotated[str, typer.Argument(metavar="B", help="The other sequence, likewise.")],
    sequence: Annotated[
        str | None, typer.Option(metavar="FILE", help="Write one such subsequence as FASTA.")
    ] = None,
    length_only: Annotated[
        bool, typer.Option("--length-only", help="Only the length, as without --sequence.")
    ] = False,
    blocks: Annotated[
        str | None, typer.Option(metavar="FILE", help="Write the runs of the alignment as PAF.")
    ] = None,
    plot: Annotated[
        str | None, typer.Option(metavar="FILE", help="Draw the blocks as a dot plot, PNG or SVG.")
    ] = None,
    identity: Annotated[
        bool,
        typer.Option(
            "--identity",
            help="Add two columns: lcs by the longer length, and by the columns of the alignment.",
        ),
    ] = False,
    min_block: Annotated[
        int, typer.Option(min=1, help="Shortest run for --blocks and --plot.")
    ] = 1,
    text: Annotated[
        bool, typer.Option("--text", help="Compare the bytes of any two files as they are.")
    ] = False,
    method: Annotated[
        LcsMethod | None,
        typer.Option(
            help="Default: adaptive. block-step needs CUDA, adaptive and systolic can use it."
        ),
    ] = None,
    device: choices.DeviceOption = "auto",
    threads: choices.ThreadsOption = 0,
    cluster: choices.ClusterOption = None,
    format_: choices.RowsFormatOption = None,
    output: choices.OutputOption = None,
    header: choices.HeaderOption = "hash",
    comments: choices.CommentsOption = False,
    quiet: choices.QuietOption = False,
) -> None:
    """Find the longest common subsequence of two sequences, exactly, in linear memory.

    One row: the names, the lengths, the length in common. Ambiguity letters match nothing.
    """
    files = {"--sequence": sequence, "--blocks": blocks, "--plot": plot}
    asked = [name for name, file in files.items() if file] + ["--identity"] * identity
    if length_only and asked:
        raise UsageError(f"--length-only finds no subsequence, which {asked[0]} needs")
    check_files([a, b], output, files)
    format_ = rows_format(format_, output)
    choices.name_provenance("lcs", None, [a, b], header, comments)
    if cluster is not None and (method not in (None, "adaptive", "systolic") or device == "cuda"):
        raise UsageError("--cluster runs the methods adaptive and systolic, on CPUs")
    if plot is not None:
        from streamer.batch.plots import DOT_FORMATS, check_plot

        check_plot(plot, DOT_FORMATS, "plot")

    from streamer.batch.choice import choose
    from streamer.batch.lcs import DEFAULT, METHODS
    from streamer.output.rows import open_rows
    from trie.cpu.threads import usable_cores

    if cluster is not None:
        device = "cpu"
    first, other = (_text(path) if text else _record(path) for path in (a, b))
    choice = choose(
        METHODS, DEFAULT, method, device, say,
        lambda: cost_model.lcs(first.codes, other.codes, whole=bool(asked)), threads, 1,
    )  # fmt: skip
    with ExitStack() as stack:
        processors = None
        if cluster is not None:
            from streamer.cluster.batch_tasks import passes_of
            from streamer.cluster.connecting import connected

            where = stack.enter_context(connected(cluster, threads))
            processors = passes_of(where)
            if not quiet:
                say(where.line())
        stack.enter_context(compile_notice(quiet=quiet))
        cost_model.say_where(choice, device, quiet)
        from streamer.batch.lcs.solve import cells_of, length_of, matching_of
        from streamer.batch.lcs.symbols import DNA_SYMBOLS, TEXT_SYMBOLS

        symbols = TEXT_SYMBOLS if text else DNA_SYMBOLS
        columns = [*COLUMNS, *(IDENTITY_COLUMNS if identity else ())]
        with open_rows(output, format_, columns) as writer:
            matching: Matching | None = None
            cells = cells_of(first.codes.size, other.codes.size, choice, matching=bool(asked))
            with _progress(cells, quiet) as on_cells:
                job = (
                    first.codes, other.codes, symbols, choice, threads or usable_cores(), on_cells,
                    processors,
                )  # fmt: skip
                if asked:
                    matching = matching_of(*job)
                    length = len(matching)
                else:
                    length = length_of(*job)
            _write_row(writer, columns, first, other, length, matching)
        if matching is not None:
            _write_files(first, other, matching, files, min_block, symbols)


def _record(path: str) -> NamedSequence:
    """The only record of a file; DataError if it has none or several."""
    from streamer.batch.records import records
    from streamer.sequences.source import shown_name

    first = None
    for record in records(path):
        if first is not None:
            raise DataError(
                "a second record; only one is compared: put it into its own file",
                file=shown_name(path),
                record=2,
                name=record.name,
            )
        first = record
    if first is None:
        raise DataError("holds no record; one is needed", file=shown_name(path))
    return first


def _text(path: str) -> NamedSequence:
    """The bytes of a file as a sequence named by its path."""
    import numpy as np

    from streamer.batch.records import NamedSequence
    from streamer.sequences.source import shown_name

    if path == "-":
        return NamedSequence(path, np.frombuffer(sys.stdin.buffer.read(), dtype=np.uint8))
    name = printable(shown_name(path))
    with open(path, "rb") as file:
        return NamedSequence(name, np.frombuffer(file.read(), dtype=np.uint8))


@contextmanager
def _progress(total: int, quiet: bool) -> Iterator[Callable[[int], None]]:
    """A progress bar, and a function that adds cells to it from any thread."""
    from streamer.cli.streams import progress

    lock = threading.Lock()
    done = 0
    with progress("comparing", total, quiet=quiet, unit="share") as show:

        def add(cells: int) -> None:
            nonlocal done
            with lock:
                done += cells
                show(done)

        yield add


def _write_row(
    writer: Rows,
    columns: list[str],
    first: NamedSequence,
    other: NamedSequence,
    length: int,
    matching: Matching | None,
) -> None:
    from streamer.output.text_table import Table, texts

    values = [first.name, other.name, first.codes.size, other.codes.size, length]
    if matching is not None and len(columns) > len(values):
        values += [round(matching.identity(), 6), round(matching.column_identity(), 6)]
    writer.write(Table({name: texts([value]) for name, value in zip(columns, values, strict=True)}))


def _write_files(
    first: NamedSequence,
    other: NamedSequence,
    matching: Matching,
    files: Mapping[str, str | None],
    min_block: int,
    symbols: int,
) -> None:
    from streamer.batch.lcs import subsequence
    from streamer.batch.lcs.symbols import TEXT_SYMBOLS

    sequence, blocks, plot = files.values()
    if sequence is not None:
        text = symbols == TEXT_SYMBOLS
        letters = subsequence(first.codes, matching, text=text)
        header = f">lcs {first.name} {other.name} length={len(letters)}\n".encode()
        write_file(sequence, [letters] if text else [header, *_lines(letters)])
    if blocks is None and plot is None:
        return
    runs = matching.blocks()
    runs = runs[runs["length"] >= min_block]
    if blocks is not None:
        write_file(blocks, [_paf(first, other, runs)])
    if plot is not None:
        from streamer.batch.plots import by_chance, dot_plot

        chance = by_chance(first.codes, other.codes, symbols)
        write_file(plot, [dot_plot(plot, matching, (first.name, other.name), runs, chance)])


def _lines(letters: bytes) -> Iterator[bytes]:
    for first in range(0, len(letters), LINE):
        yield letters[first : first + LINE] + b"\n"


def _paf(first: NamedSequence, other: NamedSequence, runs: NDArray[np.void]) -> bytes:
    """A row of PAF for each run, with A as the query; its CIGAR is one match."""
    from streamer.output.text_table import Table, distinct, same

    rows = runs.size
    length = runs["length"]
    table = Table(
        {
            "query": same(first.name, rows),
            "query_length": same(first.codes.size, rows),
            "query_start": runs["a_start"],
            "query_end": runs["a_start"] + length,
            "strand": same("+", rows),
            "target": same(other.name, rows),
            "target_length": same(other.codes.size, rows),
            "target_start": runs["b_start"],
            "target_end": runs["b_start"] + length,
            "matches": length,
            "columns": length,
            "quality": same(NO_QUALITY, rows),
            "cigar": distinct(length, lambda lengths: [f"cg:Z:{n}=" for n in lengths.tolist()]),
        }
    )
    return b"".join(table.formatted("tsv"))
