"""Checks of file names that several commands make before they start."""

from __future__ import annotations

from collections.abc import Mapping

from streamer.errors import StreamerError, UsageError


def check_files(inputs: list[str], outputs: list[str | None]) -> None:
    """Every input is there, and none would be written over."""
    import os

    from streamer.sequences.files import STDIN, check_exist

    if "" in (*inputs, *outputs):
        message = "the name of a file is empty"
        raise UsageError(message)
    check_exist(inputs)
    for output in outputs:
        for path in inputs:
            if (
                path != STDIN
                and output
                and os.path.isfile(output)
                and os.path.samefile(path, output)
            ):
                message = f"{output}: input and output are the same file"
                raise UsageError(message)


def check_outputs(output: str | None, files: Mapping[str, str | None] | None = None) -> None:
    """Fail before the work begins: two results in one place, or in one that cannot be written.

    ``output`` is where the rows go, ``files`` the other outputs by their options.
    """
    import os

    from trie.new_file import check_new_file

    files = files or {}
    for option, file in files.items():
        if file == "-":
            message = f"{option} -: rows go to standard output; name a file"
            raise UsageError(message)
        if file and output in (None, "", "-") and _is_standard_output(file):
            message = f"{option} {file}: rows go to standard output; name another file"
            raise UsageError(message)
    given = [path for path in (output, *files.values()) if path and path != "-"]
    real = [os.path.realpath(path) for path in given]
    for path, place in zip(given, real, strict=True):
        if real.count(place) > 1:
            message = f"{path}: is to be written twice"
            raise UsageError(message)
        try:
            check_new_file(path)
        except OSError as error:
            message = f"{path}: cannot write: {error.strerror}"
            raise StreamerError(message) from error


def _is_standard_output(path: str) -> bool:
    """Whether a file is where standard output goes: /dev/stdout, or what it was sent to."""
    import os
    import sys

    try:
        place = os.stat(path)
        ours = os.fstat(sys.stdout.fileno())
    except (OSError, ValueError):
        # it is not there, or standard output is no file
        return False
    # nobody reads what both write there
    return os.path.samestat(place, ours) and not os.path.samestat(place, os.stat(os.devnull))
