"""``streamer run`` and ``validate``: the daemon and its configuration."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from typing import Annotated

import typer

from streamer.cli.choices import say_error
from streamer.cli.daemon_options import ConfigOption, SettingsOption
from streamer.errors import ReportedError, StreamerError


def run(
    config: ConfigOption = None,
    settings: SettingsOption = None,
    accept_loss: Annotated[
        bool, typer.Option("--accept-loss", help="Start without the damaged parts of the journal.")
    ] = False,
) -> None:
    """Run the daemon until SIGINT or SIGTERM, which drain it; a second signal ends it at once."""
    from streamer.daemon import logs

    # standard error may block, too
    with logs.unfailing():
        try:
            _serve(config, settings, accept_loss)
        except StreamerError as error:
            for line in error.lines():
                say_error(line)
            if sys.stdout.isatty() and not sys.stderr.isatty():
                # the log is elsewhere: say here, too, why no daemon has started
                for line in error.lines() or [str(error)]:
                    typer.echo(f"streamer: error: {line}")
            raise ReportedError(error) from error


def _serve(config: str | None, settings: list[str] | None, accept_loss: bool) -> None:
    from streamer.daemon.config import load

    loaded = load(config, settings or ())
    from streamer.cli.job_lines import parse_line
    from streamer.daemon import logs
    from streamer.daemon.service import run
    from streamer.protocol.endpoints import announced

    for_people = logs.configure(loaded.log.level, loaded.log.format)
    announcement = ExitStack()

    def ready(endpoints: dict[str, str]) -> None:
        announcement.enter_context(announced(config, endpoints))

    try:
        with announcement:
            run(loaded, accept_loss=accept_loss, ready=ready, parse_job=parse_line)
    except StreamerError as error:
        if for_people:
            raise
        # log the error, since programs read the log
        logs.error(str(error))
        raise ReportedError(error) from error


def validate(
    config: Annotated[str, typer.Option("--config", "-c", help="Configuration (TOML).")],
    settings: SettingsOption = None,
) -> None:
    """Check a configuration: ok, or every fault with its key."""
    from streamer.daemon.config import load

    load(config, settings or (), check_targets=True)
    typer.echo("ok")
