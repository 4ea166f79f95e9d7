"""Shared by all tests."""

from __future__ import annotations

import os
import signal
from collections import Counter
from contextlib import suppress

import pytest

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


# other tests, and the parts of those in tests/gpu/conftest.py, are for other processes
collect_ignore = (
    ["golden", "streamer", "trie"] if os.environ.get("NUMBA_ENABLE_CUDASIM") == "1" else []
)


def pytest_addoption(parser):
    parser.addoption("--update-golden", action="store_true", help="Record golden files anew.")


@pytest.fixture
def update_golden(request):
    """Whether golden files are recorded anew."""
    return request.config.getoption("--update-golden")


def pytest_terminal_summary(terminalreporter):
    """Add what ran, and what did not for which reason, to the line that scripts/test ends with."""
    path = os.environ.get("STREAMER_TEST_SUMMARY")
    if not path:
        return
    reports = terminalreporter.stats
    parts = [
        f"{len(reports[outcome]):,} {outcome}"
        for outcome in ("passed", "failed", "error")
        if reports.get(outcome)
    ]
    reasons = Counter(
        report.longrepr[2].removeprefix("Skipped: ") for report in reports.get("skipped", ())
    )
    missing = ", ".join(f"{count} ({reason})" for reason, count in reasons.most_common())
    with open(path, "a") as file:
        file.write(", ".join(parts) + (f", not run: {missing}" if missing else "") + "\n")


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
