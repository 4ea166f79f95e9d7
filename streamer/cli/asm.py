"""``streamer asm``: patterns in texts within an edit distance (WsPASM paper)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from streamer.cli import choices, cost_model, pattern_search
from streamer.output.output_file import line_format, rows_format

if TYPE_CHECKING:
    from streamer.batch.hits import Hits
    from streamer.output.text_table import Labels, Rows
    from streamer.sequences.record_buffer import TextPiece

AsmReport = Literal["all", "best"]
AsmMethod = Literal["bit-parallel", "sequential", "pasm", "wspasm", "wspasm-shared"]


def asm(
    text: pattern_search.TextArgument,
    k: Annotated[
        int, typer.Option("-k", min=0, help="Edits allowed; fewer than a pattern has letters.")
    ],
    pattern: pattern_search.PatternOption = None,
    patterns: Annotated[
        str | None, typer.Option(metavar="FASTA", help="Patterns, one a record.")
    ] = None,
    strands: pattern_search.PatternStrandsOption = "both",
    report: Annotated[
        AsmReport,
        typer.Option(
            help="all: every end within k. best: the best of adjacent ends and of overlapping "
            "hits, with start and CIGAR."
        ),
    ] = "all",
    method: Annotated[
        AsmMethod | None, typer.Option(help="Default: bit-parallel. wspasm* need CUDA.")
    ] = None,
    iupac: Annotated[
        bool,
        typer.Option("--iupac", help="N, R, Y, ... in a pattern match their bases, else nothing."),
    ] = False,
    device: choices.DeviceOption = "auto",
    gpus: choices.GpusOption = 0,
    threads: choices.ThreadsOption = 0,
    cluster: choices.ClusterOption = None,
    format_: choices.RowsFormatOption = None,
    output: choices.OutputOption = None,
    header: choices.HeaderOption = "hash",
    comments: choices.CommentsOption = False,
    quiet: choices.QuietOption = False,
) -> None:
    """Find patterns in texts within an edit distance (approximate string matching).

    A row for every end where a pattern, or its reverse complement (strand -), matches with at most
    k substitutions, insertions and deletions. Rows go to standard output.
    """
    pattern_search.check_search(text, pattern, patterns, output)
    format_ = rows_format(format_, output)
    choices.name_provenance("asm", k, [patterns, text], header, comments)

    from streamer.batch.asm import DEFAULT, METHODS, find
    from streamer.batch.asm.blocks import of_pieces
    from streamer.batch.asm.pattern_masks import check_patterns, masks_of, searches
    from streamer.batch.hits import COLUMNS
    from streamer.output.text_table import Labels

    source, names, masks = pattern_search.read_patterns(
        pattern, patterns, partial(masks_of, iupac=iupac), quiet=quiet
    )
    check_patterns(masks, names, k, source=source)
    codes = [int((mask == 0).sum()) for mask in masks]
    remedy = "--iupac lets them match the bases they stand for"
    pattern_search.check_codes(codes, names, k, source, remedy, quiet=quiet)
    lengths = [len(mask) for mask in masks]
    columns = [*COLUMNS, "cigar"] if report == "best" else COLUMNS
    wanted = searches(masks, k, strands)
    pattern_names = Labels(names)
    texts = _Texts()
    form = None if cluster is None else line_format(format_, "--cluster")
    base = cost_model.asm_base(lengths, 1 + (strands == "both"))
    work = partial(cost_model.asm, text, base)
    with cost_model.search_run(
        METHODS, DEFAULT, method, device, work, threads, gpus, cluster, quiet=quiet
    ) as (choice, where):
        size = None
        if where is None:
            cost_model.say_where(choice, device, quiet)
        else:
            from streamer.cluster import batch_tasks

            size = batch_tasks.piece_symbols(base, cost_model.bases_of_files([text]), where.cpus)
        with pattern_search.searching(
            text, wanted.reach, output, form or format_, columns, quiet, size
        ) as (writer, pieces):
            if where is None:
                hits = find(
                    of_pieces(texts.named(pieces)), wanted, choice, report=report, threads=threads
                )
            elif report == "best":
                hits = batch_tasks.asm_best(where, texts.named(pieces), wanted, choice)
            else:
                assert form is not None
                for lines in batch_tasks.asm_lines(where, pieces, wanted, choice, names, form):
                    writer.put(lines.data)
                return
            texts.write(writer, hits, pattern_names)


class _Texts:
    """The names of texts that later rows may need; earlier ones are dropped: reads may be many."""

    def __init__(self) -> None:
        self._first = 0
        self._names: list[str] = []

    def named(self, pieces: Iterable[TextPiece]) -> Iterator[TextPiece]:
        """Yield the pieces, after noting the names of their texts."""
        for piece in pieces:
            # the first name may be known from the previous piece
            self._names.extend(piece.reads.names[self._first + len(self._names) - piece.first :])
            yield piece

    def write(self, writer: Rows, blocks: Iterable[tuple[int, Hits]], patterns: Labels) -> None:
        """Write the rows that ``asm.find`` gives for these pieces."""
        for first, hits in blocks:
            own = replace(hits, text=hits.text - self._first)
            pattern_search.write_hits(writer, own, self._names, patterns)
            done = max(0, first - self._first)
            del self._names[:done]
            self._first += done
