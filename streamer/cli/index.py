"""``streamer index``: a dictionary as a file that is mapped, not read."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated, Any

import typer

from streamer.cli import choices
from streamer.errors import StreamerError, UsageError
from trie.strands import Strands

if TYPE_CHECKING:
    from streamer.dictionary.index import Index


def index(
    sources: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="FASTX...", help="Sequences, or folders of them; - is standard input."
        ),
    ] = None,
    k: Annotated[
        int | None, typer.Option("-k", min=1, max=31, help="Length of a k-mer, 1 to 31.")
    ] = None,
    strands: Annotated[
        Strands, typer.Option(help="Which orientations are one k-mer.")
    ] = "canonical",
    targets: choices.TargetsOption = None,
    target_by: choices.TargetByOption = "record",
    subtract: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FASTX", help="Leave out its k-mers; may be an index; may be given again."
        ),
    ] = None,
    intersect: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FASTX", help="Keep only its k-mers; may be an index; may be given again."
        ),
    ] = None,
    output: Annotated[
        str | None, typer.Option("-o", "--output", metavar="FILE", help="Write the index there.")
    ] = None,
    info: Annotated[
        str | None, typer.Option("--info", metavar="FILE", help="Describe an index.")
    ] = None,
    check: Annotated[
        str | None, typer.Option("--check", metavar="FILE", help="Read and verify an index.")
    ] = None,
    format_: choices.FormatOption = "tsv",
    quiet: choices.QuietOption = False,
) -> None:
    """Build the index of a dictionary that does not change, describe one, or verify one.

    Every --dictionary, dictionary.sources and Dictionary.open take the file. It is mapped: opening
    takes no time, and processes share its memory.
    """
    asked = [name for name, value in (("--info", info), ("--check", check)) if value is not None]
    if len(asked) + bool(sources) != 1:
        raise UsageError("give sequences to index, or --info FILE, or --check FILE")
    if info is not None:
        _show(info, format_)
    elif check is not None:
        _verify(check, quiet)
    else:
        assert sources is not None
        if k is None or output is None:
            raise UsageError("an index needs -k and -o FILE")
        if output == "-":
            raise UsageError("-o -: an index is not a stream; name a file")
        changes = subtract or [], intersect or []
        _build(sources, k, strands, targets, target_by, changes, output, quiet)


def _build(
    sources: list[str],
    k: int,
    strands: Strands,
    targets: str | None,
    target_by: str,
    changes: tuple[list[str], list[str]],
    output: str,
    quiet: bool,
) -> None:
    from streamer.cli.streams import progress
    from streamer.dictionary.index import Index, check_records_only, selected
    from streamer.dictionary.target_table import read_targets
    from streamer.dictionary.targets import check_notices
    from streamer.sequences.source import size_of_files
    from trie.cpu.team import Team
    from trie.cpu.threads import usable_cores
    from trie.index.index_file import is_index

    sources = choices.files_of_dictionary(sources, quiet=quiet)
    choices.check_files(
        [*sources, *changes[0], *changes[1], *([targets] if targets else [])], output
    )
    table = read_targets(targets) if targets else None
    for path in filter(is_index, sources):
        check_records_only(path, Index.open(path))
    size = size_of_files(sources) or 0
    with Team(usable_cores()) as team, progress("indexing", 100, quiet=quiet, unit="share") as show:
        made = Index.from_files(
            sources, k, strands, table=table, by_file=target_by == "file", team=team,
            on_bytes=lambda done: show(5 * done // max(size, 1)),
        )  # fmt: skip
        notice, none = None if quiet else choices.say, not made.windows
        check_notices(made.kmerless(), made.names, sources, k, notice, none=none)
        if any(changes):
            made = selected(made, *changes, team=team)
        made.save(output, lambda done: show(int(5 + 90 * done)))


def _show(path: str, format_: str) -> None:
    import json

    from streamer.dictionary.index import Index

    facts = _facts(Index.open(path), path)
    if format_ == "jsonl":
        typer.echo(json.dumps(facts))
        return
    for key, value in facts.items():
        for entry in value if isinstance(value, list) else [value]:
            words = entry.values() if isinstance(entry, dict) else [entry]
            typer.echo(" ".join([key, *map(str, words)]))


def _facts(made: Index, path: str) -> dict[str, Any]:
    return {
        "k": made.k,
        "strands": made.strands,
        "targets": len(made.names),
        **({"groups": len({*made.groups})} if made.groups else {}),
        "records": len(made.records),
        "bases": made.bases,
        "kmers": made.shares.distinct,
        **({"grown": made.grown.size} if made.grown.size else {}),
        "bytes": os.path.getsize(path),
        "source": [
            {"path": source.path, "bytes": source.size, "sha256": source.sha256 or "."}
            for source in made.sources
        ],
    }


def _verify(path: str, quiet: bool) -> None:
    from streamer.cli.streams import progress
    from streamer.sequences.source import size_of_files
    from trie.index.index_file import IndexFileError, damaged

    try:
        with progress("verifying", size_of_files([path]), quiet=quiet) as show:
            parts = damaged(path, show)
    except IndexFileError as error:
        raise StreamerError(str(error)) from error
    if parts:
        raise StreamerError(f"{path}: is damaged: {', '.join(parts)}")
    typer.echo("ok")
