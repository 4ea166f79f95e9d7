"""How commands find a daemon: its configuration, its endpoints, and how long they wait for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from streamer.client.control import Control
    from streamer.protocol.keys import ClientKeys

ConfigOption = Annotated[
    str | None, typer.Option("--config", "-c", help="Configuration (TOML); without it, defaults.")
]
SettingsOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="TABLE.KEY=VALUE", help="Override a setting; may be repeated."),
]
ControlOption = Annotated[str | None, typer.Option("--at", help="Control endpoint of the daemon.")]

KeysOption = Annotated[
    str | None,
    typer.Option(
        "--keys",
        metavar="PATH",
        help="Key of this client, or the folder that keygen made; by default that of --config.",
    ),
]

ANSWER_SECONDS = 5.0
"""How many seconds a daemon may be silent."""


def endpoint_of(name: str, option: str | None, config: str | None) -> str:
    """The endpoint that a client connects to: the given one, or that of the configuration."""
    from streamer.errors import UsageError
    from streamer.protocol.endpoints import check_endpoint, unset_endpoint

    if option is not None:
        try:
            endpoint = check_endpoint(option)
        except ValueError as error:
            raise UsageError(str(error)) from None
    else:
        from streamer.daemon.config import load

        table = getattr(load(config, check_files=False), name)
        set_there = "endpoint" in table.model_fields_set
        endpoint = table.endpoint if set_there else unset_endpoint(name, config)
    if endpoint.endswith((":*", ":0")):
        raise UsageError(f"{endpoint} leaves the port open: name the one that the daemon logs")
    return endpoint


def limit_records_by(config: str | None) -> None:
    """Read no longer records than a configuration says, unless ``--max-record`` does."""
    from streamer.sequences.record_limit import MOST_BASES, limit_records, most_bases

    if config is not None and most_bases() == MOST_BASES:
        from streamer.daemon.config import load

        limit_records(load(config, check_files=False).ingest.max_record_bases)


def keys_of(path: str | None, config: str | None, endpoint: str) -> ClientKeys | None:
    """The keys of a client: the given ones, or those of the configuration, None if it has none.

    endpoint: where it connects; an endpoint that is not on this machine needs keys.
    """
    from streamer.errors import UsageError
    from streamer.protocol.endpoints import is_local
    from streamer.protocol.keys import ClientKeys

    if path is None and config is not None:
        from streamer.daemon.config import load

        path = load(config, check_files=False).security.keys or None
    if path is not None:
        return ClientKeys.read(path)
    if not is_local(endpoint):
        raise UsageError(
            f"{endpoint} is not on this machine: give the key of this client (--keys FILE)"
        )
    return None


def open_control(at: str | None, config: str | None, keys: str | None) -> Control:
    """A connection to the control socket of a running daemon, found by these options."""
    from streamer.client.control import Control

    endpoint = endpoint_of("control", at, config)
    return Control(endpoint, keys=keys_of(keys, config, endpoint))
