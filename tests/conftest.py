"""Shared by all tests."""

from __future__ import annotations

import pytest


@pytest.fixture
def streamer(capfdbinary):
    """Run one command line in this process: (exit code, standard output, standard error).

    That kernels are compiled is left out: it is said or not as the cache has them.
    """
    from streamer.cli.app import main
    from streamer.compiling import NOTICE

    def run(*arguments):
        capfdbinary.readouterr()
        code = main([str(argument) for argument in arguments])
        out, err = capfdbinary.readouterr()
        return code, out.decode(), err.decode().replace(f"streamer: {NOTICE}\n", "")

    return run
