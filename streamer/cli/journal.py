"""``streamer journal``: check, rebuild and copy the journal of a daemon."""

from typing import Annotated

import typer

app = typer.Typer(
    help="Check the journal of a daemon, make its index anew, or copy it.", no_args_is_help=True
)

_DIRECTORY = typer.Argument(metavar="DIR", help="The folder of the journal.", show_default=False)


@app.command()
def check(directory: Annotated[str, _DIRECTORY]) -> None:
    """Read everything in a journal that no daemon uses; each damage is a line, and the exit code 1.

    Nothing is changed.
    """
    from streamer.journal.store import check_journal

    typer.echo(check_journal(directory))


@app.command()
def rebuild(directory: Annotated[str, _DIRECTORY]) -> None:
    """Make the index of a journal that no daemon uses anew, from its data files."""
    from streamer.journal.store import rebuild_index

    typer.echo(rebuild_index(directory))


@app.command()
def copy(
    directory: Annotated[str, _DIRECTORY],
    target: Annotated[str, typer.Argument(metavar="COPY", help="A new or empty folder.")],
) -> None:
    """Copy a journal while its daemon runs, up to what is stored now.

    A daemon that starts with the copy goes on as another stream.
    """
    from streamer.journal.store import copy_journal

    typer.echo(copy_journal(directory, target))
