"""Shared by all tests."""

from __future__ import annotations

import gc
import os
import re
import signal
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest

from tests.data_files import data_files, data_folders
from trie.cpu.compiling import kernel_folder

with suppress(ImportError):  # tests that need it report that it is missing
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


# the simulator runs kernels alone, see also tests/gpu/conftest.py
collect_ignore = (
    [
        path.name
        for path in Path(__file__).parent.iterdir()
        if path.name not in ("gpu", "__init__.py")
    ]
    if os.environ.get("NUMBA_ENABLE_CUDASIM") == "1"
    else []
)


ALL_WHOLE = re.compile(r"^pytestmark = .*\bmark\.whole\b", re.MULTILINE)


def pytest_configure():
    """Processes with another home have the kernels of this one: they would compile for minutes."""
    folder = kernel_folder().path
    if folder is not None:
        os.environ.setdefault("NUMBA_CACHE_DIR", str(folder.parents[1]))


def pytest_addoption(parser):
    parser.addoption("--update-golden", action="store_true", help="Record the golden files again.")


@pytest.fixture
def update_golden(request):
    """Whether to record the golden files again."""
    return request.config.getoption("--update-golden")


def pytest_ignore_collect(collection_path, config):
    """In the fast lane, modules with no test of it are not even imported."""
    if collection_path.suffix == ".py" and "not whole" in config.option.markexpr:
        return ALL_WHOLE.search(collection_path.read_text()) is not None or None
    return None


def pytest_collection_modifyitems(config, items):
    """Long modules first, so that no core is idle at the end; no tests of data that is not here."""
    gc.freeze()  # tests and modules stay: to look for garbage among them takes a tenth of the time
    gc.set_threshold(50_000, 20, 20)
    items.sort(key=lambda item: item.get_closest_marker("whole") is None)
    lacking = [
        item
        for item in items
        if not all(data_files(name) for mark in item.iter_markers("data") for name in mark.args)
    ]
    if lacking:
        config.hook.pytest_deselected(items=lacking)
        items[:] = [item for item in items if item not in set(lacking)]


def pytest_terminal_summary(terminalreporter):
    """Add reruns and tests that could not run, and why, to the last line of scripts/test."""
    path = os.environ.get("STREAMER_TEST_SUMMARY")
    if not path or "PYTEST_XDIST_WORKER" in os.environ:
        return
    reports = terminalreporter.stats
    ran = [
        f"{len(reports[outcome]):,} {outcome}"
        for outcome in ("passed", "failed", "error")
        if reports.get(outcome)
    ]
    ran += [f"run again: {report.nodeid}" for report in reports.get("rerun", ())]
    reasons = Counter(
        report.longrepr[2].removeprefix("Skipped: ") for report in reports.get("skipped", ())
    )
    missing = [f"{count} ({reason})" for reason, count in reasons.most_common()]
    if len(data_folders()) == 1:
        missing.append("real genomes and runs (STREAMER_TEST_DATA)")
    if missing:
        missing[0] = f"not run: {missing[0]}"
    with open(path, "a") as file:
        file.write(", ".join(ran + missing) + "\n")


@pytest.fixture(autouse=True)
def interruptible():
    """Have SIGINT and SIGHUP end this process and its children; in the background they may not."""
    handlers = {signal.SIGINT: signal.default_int_handler, signal.SIGHUP: signal.SIG_DFL}
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture(scope="module")
def forked_children():
    """Daemons in this process start theirs as forks, see ``tests.forked``."""
    from tests import forked

    with forked.children():
        yield


@pytest.fixture
def streamer(capfdbinary):
    """Run one command line in this process: (exit code, standard output, standard error).

    The notice that kernels are compiled is removed, since it depends on the cache.
    """
    from streamer.cli.app import main
    from trie.cpu.compiling import NOTICE

    def run(*arguments, app=None):
        capfdbinary.readouterr()
        code = main([str(argument) for argument in arguments], app)
        out, err = capfdbinary.readouterr()
        return code, out.decode(), err.decode().replace(f"streamer: {NOTICE}\n", "")

    return run
