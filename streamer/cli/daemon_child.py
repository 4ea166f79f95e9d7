"""``python -m streamer.cli.daemon_child PARENT ...``: a command line that ends with its daemon.

PARENT: the PID of the process that starts it.
"""

import sys

from streamer.__main__ import run
from trie.cpu.machine import end_with


def main() -> None:
    """Run the command line after PARENT; it is killed when the thread that started it ends."""
    end_with(int(sys.argv.pop(1)))
    run()


if __name__ == "__main__":
    main()
