"""Shared by all tests."""

from __future__ import annotations

import signal
from contextlib import suppress

import pytest

from tests.waiting import SIMULATION

SIMULATED = "_simulated.py"

with suppress(ImportError):  # without it the tests that need it tell
    from hypothesis import HealthCheck, settings

    # the same examples everywhere, however slow the machine is
    settings.register_profile(
        "repeatable",
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=[HealthCheck.too_slow],
    )
    settings.load_profile("repeatable")


def pytest_addoption(parser):
    parser.addoption("--update-golden", action="store_true", help="Record golden files anew.")


@pytest.fixture
def update_golden(request):
    """Whether golden files are recorded anew."""
    return request.config.getoption("--update-golden")


def pytest_collection_modifyitems(items):
    """What takes longest comes first, and may."""
    items.sort(key=lambda item: not item.path.name.endswith(SIMULATED))
    for item in items:
        if item.path.name.endswith(SIMULATED):
            item.add_marker(pytest.mark.timeout(SIMULATION + 100))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """A worker of pytest-xdist takes a file, or one simulator."""
    from xdist.scheduler import LoadFileScheduling

    class Scheduling(LoadFileScheduling):
        def _split_scope(self, nodeid):
            file = super()._split_scope(nodeid)
            return nodeid if file.endswith(SIMULATED) else file

    return Scheduling(config, log) if config.getvalue("dist") == "loadfile" else None


@pytest.fixture
def interruptible():
    """SIGINT and SIGHUP end this process and its children: in the background they may not."""
    handlers = {signal.SIGINT: signal.default_int_handler, signal.SIGHUP: signal.SIG_DFL}
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture
def streamer(capfdbinary):
    """Run one command line in this process: (exit code, standard output, standard error).

    That kernels are compiled is left out: it is said or not as the cache has them.
    """
    from streamer.cli.app import main
    from trie.cpu.compiling import NOTICE

    def run(*arguments):
        capfdbinary.readouterr()
        code = main([str(argument) for argument in arguments])
        out, err = capfdbinary.readouterr()
        return code, out.decode(), err.decode().replace(f"streamer: {NOTICE}\n", "")

    return run
