"""``python -m streamer`` and the console script."""

from __future__ import annotations

import sys


def run() -> None:
    """Entry point of the console script."""
    from streamer.cli.app import main

    sys.exit(main())


if __name__ == "__main__":
    run()
