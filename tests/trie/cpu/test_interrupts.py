"""An interrupt is raised as one, whatever it comes in the midst of."""

from __future__ import annotations

import _thread
import operator
import subprocess
import sys
import threading
from functools import partial

import numpy as np
import pytest
from numba import njit

from tests.waiting import DEADLINE
from trie.cpu.interrupts import interrupt_in, interrupts_as_such
from trie.cpu.threads import run_all


def caused(*kinds: type[BaseException]) -> BaseException:
    """An error of the first kind whose cause is one of the second, and so on."""
    first, *others = (kind() for kind in kinds)
    error = first
    for cause in others:
        error.__cause__ = cause
        error = cause
    return first


@pytest.mark.parametrize(
    ("kinds", "interrupted"),
    [
        ([KeyboardInterrupt], True),
        ([SystemError, KeyboardInterrupt], True),
        ([SystemError, SystemError, SystemError, KeyboardInterrupt], True),
        ([SystemError], False),
        ([SystemError, ValueError], False),
        ([ValueError, KeyboardInterrupt], False),
    ],
)
def test_what_an_error_comes_from(kinds: list[type[BaseException]], interrupted: bool) -> None:
    error = caused(*kinds)
    assert (interrupt_in(error) is not None) == interrupted
    raised = KeyboardInterrupt if interrupted else kinds[0]
    with pytest.raises(raised) as told, interrupts_as_such():
        raise error
    assert interrupted or told.value is error
    assert not isinstance(told.value.__cause__, SystemError)


@njit
def two_arrays() -> tuple[np.ndarray, np.ndarray]:
    return np.empty(3), np.empty(4)


@pytest.mark.parametrize("threads", [1, 2])
def test_an_interrupt_that_a_kernel_ends_with(threads: int) -> None:
    """Arrays in a tuple, while an interrupt waits: numba comes upon it and goes on."""
    two_arrays()
    # both calls by one step of the interpreter
    kernel = partial(list, map(operator.call, [_thread.interrupt_main, two_arrays]))
    with pytest.raises(KeyboardInterrupt), interrupts_as_such():
        run_all([kernel], threads)


@pytest.mark.parametrize("kinds", [[KeyboardInterrupt], [SystemError, KeyboardInterrupt]])
def test_an_interrupt_goes_before_what_tasks_raise(kinds: list[type[BaseException]]) -> None:
    """Who can deal with the other exception would go on."""
    both = threading.Barrier(2)

    def fail(error: BaseException) -> None:
        both.wait(DEADLINE)
        raise error

    tasks = [partial(fail, ValueError("task 0")), partial(fail, caused(*kinds))]
    with pytest.raises(KeyboardInterrupt), interrupts_as_such():
        run_all(tasks, 2)


AT_EVERY_STEP = """
import sys, threading
from trie.cpu.threads import run_all

both = threading.Barrier(2)


def interrupt_at(step):
    left = step

    def traced(frame, event, _):
        nonlocal left
        frame.f_trace_opcodes = True
        if event == "opcode":
            left -= 1
            if left == 0:
                sys.settrace(None)
                raise KeyboardInterrupt
        return traced

    sys._getframe().f_trace_opcodes = True  # Python 3.12 looks here first
    sys.settrace(traced)
    try:
        run_all([int, float, str], 2)
        return False
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(None)


step = 1
while interrupt_at(step):
    run_all([both.wait] * 2, 2)
    step += 1
print(step)
"""


def test_after_an_interrupt_at_any_step_threads_work_as_before() -> None:
    """No lock stays taken, for which all would wait from then on."""
    done = subprocess.run(
        [sys.executable, "-c", AT_EVERY_STEP],
        capture_output=True, text=True, timeout=DEADLINE, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert int(done.stdout) > 100
