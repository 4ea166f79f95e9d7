"""Shared by all tests."""

from __future__ import annotations

import re

import pytest

SIMULATED = "_simulated.py"


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """What takes longest comes first; a worker of pytest-xdist takes a file, or one simulator."""
    items.sort(key=lambda item: not item.path.name.endswith(SIMULATED))
    for item in items:
        file = item.path.name
        group = re.sub(r"\W+", "-", item.nodeid) if file.endswith(SIMULATED) else file
        item.add_marker(pytest.mark.xdist_group(group))


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
