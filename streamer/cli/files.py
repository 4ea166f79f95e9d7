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


def check_save(path: str, output: str | None) -> None:
    """The dictionary can be saved there; told before the reads are matched."""
    import os

    from trie.snapshot_file import check_place

    if output is not None and os.path.realpath(path) == os.path.realpath(output):
        message = f"{path}: --save and --output are one file"
        raise UsageError(message)
    check_place(path)
