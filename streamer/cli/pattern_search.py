"""Code that ``asm`` and ``hamming`` share: patterns and a text in, rows of hits out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from streamer.cli.choices import READS, check_files, say
from streamer.errors import DataError, UsageError, warn
from trie.strands import PatternStrands

if TYPE_CHECKING:
    from streamer.batch.hits import Hits
    from streamer.output.output_file import RowsFormat
    from streamer.output.text_table import Labels, Rows
    from streamer.sequences.record_buffer import TextPiece

T = TypeVar("T")

TextArgument = Annotated[str, typer.Argument(metavar="TEXT", help=READS)]
PatternOption = Annotated[
    list[str] | None, typer.Option("--pattern", metavar="SEQ", help="A pattern; may be repeated.")
]
PatternStrandsOption = Annotated[
    PatternStrands, typer.Option("--strands", help="Orientations of the patterns.")
]


def check_search(
    text: str, pattern: list[str] | None, patterns: str | None, output: str | None
) -> None:
    """Fail before the work begins if the options contradict each other or a file is missing."""
    if (not pattern) == (patterns is None):
        raise UsageError("give either --pattern SEQ or --patterns FASTA")
    check_files([text] if patterns is None else [text, patterns], output)


def read_patterns(
    patterns: list[str] | None, path: str | None, convert: Callable[[str], T], *, quiet: bool
) -> tuple[str, list[str], list[T]]:
    """Source, names and converted letters of the patterns; DataError for an invalid letter.

    Patterns given on the command line are their own names.
    """
    from streamer.sequences.files import read_letters
    from streamer.sequences.source import shown_name
    from trie.codes import InvalidBaseError, shown_byte

    source = "--pattern" if path is None else shown_name(path)
    records = ((own, own) for own in patterns or ()) if path is None else read_letters(path)
    names: list[str] = []
    converted: list[T] = []
    for number, (name, letters) in enumerate(records, 1):
        try:
            converted.append(convert(letters))
        except InvalidBaseError as error:
            raise DataError(
                f"{shown_byte(error.byte)} is not a base",
                file=source,
                record=number,
                name=name,
                position=error.position + 1,
            ) from None
        names.append(name)
    if path is not None and not quiet and len(set(names)) < len(names):
        from streamer.dictionary.target_sets import repeated_names

        for line in repeated_names(names, "pattern"):
            warn(f"{source}: {line}")
    return source, names, converted


def check_codes(
    codes: Sequence[int], names: Sequence[str], k: int, source: str, remedy: str, *, quiet: bool
) -> None:
    """Warn of patterns with more ambiguity codes than k; DataError if all patterns have.

    codes: how many letters of each pattern match nothing.
    """
    never = [name for name, count in zip(names, codes, strict=True) if count > k]
    if not never:
        return
    from streamer.dictionary.target_sets import first_names

    problem = (
        f"{len(never):,} of {len(names):,} patterns can never match, they have more than k = {k} "
        f"ambiguity codes: {first_names(never)}; {remedy}"
    )
    if len(never) == len(names):
        raise DataError(problem, file=source)
    if not quiet:
        say(f"warning: {source}: {problem}")


@contextmanager
def searching(
    text: str,
    overlap: int,
    output: str | None,
    format_: RowsFormat,
    columns: Sequence[str],
    quiet: bool,
    size: int | None = None,
) -> Iterator[tuple[Rows, Iterator[TextPiece]]]:
    """A writer of rows, and the pieces of the text, which overlap by ``overlap`` symbols.

    size: the approximate number of symbols in a piece; None: the default.
    """
    from streamer.cli.streams import progress
    from streamer.output.rows import open_rows
    from streamer.sequences.files import read_pieces
    from streamer.sequences.source import size_of_files
    from trie.cpu.threads import prefetched

    with (
        open_rows(output, format_, columns) as writer,
        progress("searching", size_of_files([text]), quiet=quiet) as show,
    ):
        yield writer, prefetched(read_pieces(text, overlap, size=size, on_bytes=show))


def write_hits(writer: Rows, hits: Hits, texts: Sequence[str], patterns: Labels) -> None:
    """Write the rows of hits, with names instead of indices."""
    for table in hits.tables(texts, patterns):
        writer.write(table)
