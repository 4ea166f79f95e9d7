"""Choose where to match, and say so in one line."""

from __future__ import annotations

import sys

from streamer.errors import StreamerError

NO_ENGINE = "this version matches on the CPU only"


def choose_device(device: str, *, quiet: bool) -> str:
    """The device to use for ``auto``, ``cpu`` or ``cuda``; StreamerError if it cannot be had."""
    if device == "cuda":
        message = f"--device cuda: {NO_ENGINE}; use --device cpu or auto"
        raise StreamerError(message)
    if device == "auto" and not quiet:
        from trie.parallel import usable_cores

        print(
            f"streamer: matching on the CPU, {usable_cores()} cores ({NO_ENGINE})", file=sys.stderr
        )
    return "cpu"
