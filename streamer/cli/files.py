"""Checks of file names that several commands make before they start."""

from __future__ import annotations

from streamer.errors import UsageError


def check_files(inputs: list[str], outputs: list[str | None]) -> None:
    """Every input is there, and none would be written over."""
    import os

    from streamer.sequence_files import STDIN, check_exist

    check_exist(inputs)
    for output in outputs:
        for path in inputs:
            if (
                path != STDIN
                and output
                and os.path.isfile(output)
                and os.path.samefile(path, output)
            ):
                message = f"{output}: is read, so it cannot be written too"
                raise UsageError(message)
