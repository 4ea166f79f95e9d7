"""``streamer targets``: what a running daemon has found for each target."""

from typing import Annotated, Literal

import typer

from streamer.cli.choices import OutputOption, RowsFormatOption
from streamer.cli.daemon_options import ConfigOption, ControlOption, KeysOption, open_control
from streamer.output.output_file import rows_format


def targets(
    at: ControlOption = None,
    config: ConfigOption = None,
    keys: KeysOption = None,
    by: Annotated[
        Literal["barcode", "group"] | None,
        typer.Option(help="All rows for each barcode, or rows of groups of targets."),
    ] = None,
    format_: RowsFormatOption = None,
    output: OutputOption = None,
) -> None:
    """Print the rows of match --report targets of all reads that a daemon has matched.

    The daemon counts them only with answers.targets = true.
    """
    from streamer.client.message_tables import rows_table
    from streamer.output.rows import open_rows

    format_ = rows_format(format_, output)
    with open_control(at, config, keys) as control:
        columns, rows = control.targets(by=by, more=True)
    with open_rows(output, format_, columns) as writer:
        writer.write(rows_table(columns, rows))
