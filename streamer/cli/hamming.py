"""``streamer hamming``: patterns of one length in texts, within k mismatches (PMASM paper)."""

from typing import Annotated, Literal

import typer

from streamer.cli import choices, cost_model, pattern_search
from streamer.output.output_file import line_format, rows_format

HammingMethod = Literal[
    "bit-sliced", "pigeonhole", "naive", "shift-add",
    "pmasm", "pmasm-thread", "pmasm-block-thread", "pmasm-shared",
]  # fmt: skip


def hamming(
    text: pattern_search.TextArgument,
    k: Annotated[
        int, typer.Option("-k", min=0, help="Mismatches allowed; fewer than a pattern has letters.")
    ],
    pattern: pattern_search.PatternOption = None,
    patterns: Annotated[
        str | None,
        typer.Option(metavar="FASTA", help="Patterns of one length, 1 to 256, one a record."),
    ] = None,
    strands: pattern_search.PatternStrandsOption = "both",
    method: Annotated[
        HammingMethod | None,
        typer.Option(
            help="Default: bit-sliced, or pigeonhole for many patterns. pmasm-* need CUDA."
        ),
    ] = None,
    device: choices.DeviceOption = "auto",
    gpus: choices.GpusOption = 1,  # two were slower: hits come faster than the host can handle
    threads: choices.ThreadsOption = 0,
    cluster: choices.ClusterOption = None,
    format_: choices.RowsFormatOption = None,
    output: choices.OutputOption = None,
    header: choices.HeaderOption = "hash",
    comments: choices.CommentsOption = False,
    quiet: choices.QuietOption = False,
) -> None:
    """Find patterns of one length in texts within k mismatches.

    A row for every place where a pattern, or its reverse complement (strand -), matches with at
    most k substitutions. Rows go to standard output.
    """
    pattern_search.check_search(text, pattern, patterns, output)
    format_ = rows_format(format_, output)
    choices.name_provenance("hamming", k, [patterns, text], header, comments)

    from streamer.batch.hamming import DEFAULT, METHODS, HammingSearch, SearchedText
    from streamer.batch.hamming.problem import orient
    from streamer.batch.hits import COLUMNS
    from streamer.batch.records import NamedSequence
    from streamer.output.text_table import Labels
    from trie.codes import GAP, encode

    source, names, codes = pattern_search.read_patterns(pattern, patterns, encode, quiet=quiet)
    records = list(map(NamedSequence, names, codes))
    gaps = [int((letters == GAP).sum()) for letters in codes]
    remedy = "write out their variants, or use asm --iupac"
    pattern_search.check_codes(gaps, names, k, source, remedy, quiet=quiet)
    form = None if cluster is None else line_format(format_, "--cluster")
    base = cost_model.hamming_base(len(codes), 1 + (strands == "both"))
    if cluster is not None:
        # faults are known before a cluster starts
        length = orient(records, k, strands, source=source).length
    with cost_model.search_run(
        METHODS, DEFAULT, method, device, lambda: cost_model.hamming(text, base), threads, gpus,
        cluster, quiet=quiet,
    ) as (choice, where):  # fmt: skip
        size = None
        if where is None:
            search = HammingSearch(
                records, k, strands=strands, choice=choice, free=method is None, threads=threads,
                source=source,
            )  # fmt: skip
            length = search.length
            cost_model.say_where(choice, device, quiet)
        else:
            from streamer.cluster import batch_tasks

            size = batch_tasks.piece_symbols(base, cost_model.bases_of_files([text]), where.cpus)
        with pattern_search.searching(
            text, length - 1, output, form or format_, COLUMNS, quiet, size
        ) as (writer, pieces):
            if where is None:
                pattern_names = Labels(names)
                for piece, hits in search.find(map(SearchedText.of, pieces)):
                    pattern_search.write_hits(writer, hits, piece.names, pattern_names)
            else:
                assert form is not None
                for lines in batch_tasks.hamming_lines(
                    where, pieces, records, k, strands, choice, form, free=method is None
                ):
                    writer.put(lines.data)
