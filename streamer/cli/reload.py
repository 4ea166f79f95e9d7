"""``streamer reload``: a running daemon reads the sources of its dictionary again."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from streamer.cli.daemon_options import ConfigOption, KeysOption, open_control

if TYPE_CHECKING:
    from streamer.client.control import Control

_LOOK_SECONDS = 0.2


def reload(
    to: Annotated[str | None, typer.Option("--to", help="Control endpoint of the daemon.")] = None,
    config: ConfigOption = None,
    keys: KeysOption = None,
    wait: Annotated[
        bool,
        typer.Option("--wait", help="Return once kept batches have been matched again, too."),
    ] = False,
) -> None:
    """Have a running daemon read the files of dictionary.sources again.

    New batches use the new dictionary at once; kept ones are matched again when there is time.
    """
    with open_control(to, config, keys) as control:
        said = control.reload()
        before, version = said["version_before"], said["version"]
        if before == version:
            typer.echo(f"version {version} stays: its sources have not changed")
        else:
            kmers, batches = _count(said["kmers"], "k-mer"), _count(said["batches"], "batch", "es")
            typer.echo(f"version {before} to {version}: {kmers}, {batches} to be matched again")
        if wait:
            _wait(control)


def _count(number: int, what: str, ending: str = "s") -> str:
    return f"{number:,} {what}{'' if number == 1 else ending}"


def _wait(control: Control) -> None:
    """Return once no batch is left to match again."""
    while control.status()["revision"] is not None:
        time.sleep(_LOOK_SECONDS)
