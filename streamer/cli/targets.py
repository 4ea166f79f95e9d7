"""``streamer targets``: what a running daemon has found of each target."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from streamer.cli.choices import FormatOption, OutputOption
from streamer.cli.daemon_options import (
    ConfigOption,
    ControlOption,
    KeysOption,
    endpoint_of,
    keys_of,
)


def targets(
    at: ControlOption = None,
    config: ConfigOption = None,
    keys: KeysOption = None,
    by: Annotated[
        Literal["barcode"] | None, typer.Option(help="All rows for each barcode.")
    ] = None,
    format_: FormatOption = "tsv",
    output: OutputOption = None,
) -> None:
    """Print the rows of match --report targets of all reads that a daemon has matched.

    The daemon counts with answers.targets = true.
    """
    from streamer.client.control import Control
    from streamer.client.message_tables import rows_table
    from streamer.output.rows import RowWriter

    endpoint = endpoint_of("control", at, config)
    with Control(endpoint, keys=keys_of(keys, config, endpoint)) as control:
        columns, rows = control.targets(by_barcode=by == "barcode")
    with RowWriter(output, format_, columns) as writer:
        writer.write(rows_table(columns, rows))
