"""``streamer keygen``: keys for a daemon and its clients."""

from pathlib import Path
from typing import Annotated

import typer


def keygen(
    directory: Annotated[
        str, typer.Argument(metavar="DIR", help="Folder of the keys; made if there is none.")
    ],
    names: Annotated[
        list[str] | None,
        typer.Option("--name", help="A client; may be repeated. Without it: admin."),
    ] = None,
    send: Annotated[
        list[str] | None,
        typer.Option(
            "--send", metavar="PATTERN", help="It may send as these producers; may be repeated."
        ),
    ] = None,
    watch: Annotated[
        list[str] | None,
        typer.Option("--watch", metavar="TOPIC", help="It may watch these; may be repeated."),
    ] = None,
    sync: Annotated[
        bool, typer.Option("--sync", help="It may replay past messages on these topics.")
    ] = False,
    control: Annotated[
        list[str] | None,
        typer.Option(
            "--control", metavar="COMMAND", help="It may give these commands; may be repeated."
        ),
    ] = None,
) -> None:
    """Make the keys of a daemon, and of clients, for security.keys.

    DIR/clients/NAME.key is for the client and its --keys; DIR stays with the daemon. Without
    --send, --watch, --sync and --control a client may do everything; * is a wildcard. Rights and
    limits are in DIR/permissions.toml. A running daemon follows changes of this file: deleting a
    table shuts its client out.
    """
    from streamer.cli.choices import say
    from streamer.daemon.core.rights import EVERYTHING, Rights
    from streamer.daemon.security.key_folder import PERMISSIONS_FILE, make_keys
    from streamer.protocol.keys import ADMIN

    rights = EVERYTHING
    if send or watch or sync or control:
        rights = Rights("", "", tuple(send or ()), tuple(watch or ()), sync, tuple(control or ()))
    folder = Path(directory)
    for made in make_keys(folder, [rights._replace(name=name) for name in names or [ADMIN]]):
        typer.echo(str(made.path))
    say(f"what they may do is in {folder / PERMISSIONS_FILE}")
