"""What a kept kernel is named by, in this process and in others; on a card, that it is loaded."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from gpu.card import kernel_cache
from gpu.card.kernel_cache import PACKAGES, UnknownError, identity
from tests.data_files import ROOT
from tests.gpu import placement
from tests.waiting import DEADLINE

PATHS = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
THREADS = 128
UNKNOWN = object()


def factory(k, table=(1, 2)):
    def helper(x):
        return x + THREADS

    def kernel(x):
        return helper(x) + k + table[0]

    return kernel


def test_equal_functions_have_one_name():
    assert identity(factory(3)) == identity(factory(3))


def test_what_a_function_is_made_of_is_in_its_name(monkeypatch):
    names = {identity(factory(3)), identity(factory(4)), identity(factory(3, (2, 2)))}
    monkeypatch.setattr(sys.modules[__name__], "THREADS", 64)  # read by what it calls
    names.add(identity(factory(3)))
    names.add(identity(lambda x: x + 1))
    names.add(identity(lambda x: x + 2))
    assert len(names) == 6


def test_what_has_no_name_is_not_kept():
    with pytest.raises(UnknownError):
        identity(lambda: UNKNOWN)


def test_the_packages_whose_source_is_in_the_name_are_there():
    assert all((ROOT / package / "__init__.py").is_file() for package in PACKAGES)
    assert kernel_cache._ROOT == ROOT


PRINTED = """
from gpu.card.kernel_cache import identity
from gpu.exact.bucket_table import choose_shape
from tests.gpu.exact.sources import bucket_sources, sources
for k in (7, 15):
    for name, (function, _) in sources(k).items():
        print(k, name, identity(function))
for name, (function, _) in bucket_sources(choose_shape(15, 1000)).items():
    print(name, identity(function))
"""


def test_other_processes_have_the_same_names():
    told = []
    for seed in ("1", "2"):
        environment = os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": PATHS}
        ran = subprocess.run(
            [sys.executable, "-c", PRINTED], env=environment, capture_output=True, text=True,
            check=True, timeout=DEADLINE,
        )  # fmt: skip
        told.append(ran.stdout)
    assert told[0] == told[1]
    names = [line.split()[-1] for line in told[0].splitlines()]
    assert len(set(names)) > 10


LAUNCHED = """
import numpy as np
from gpu.card.intrinsics import cuda
from gpu.card.kernel_cache import plain
from gpu.exact.device_tree import clear_words
words = cuda.to_device(np.ones(100, np.uint32))
cleared = plain(clear_words)
cleared[1, 128](words)
assert not words.copy_to_host().any()
print(sum(cleared._cache_hits.values()), sum(cleared._cache_misses.values()))
"""


@placement.NO_GPU
@pytest.mark.gpu
def test_a_second_process_loads_what_the_first_has_compiled(tmp_path):
    told = []
    for _ in range(2):
        environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path), "PYTHONPATH": PATHS}
        ran = subprocess.run(
            [sys.executable, "-c", LAUNCHED], env=environment, capture_output=True, text=True,
            check=True, timeout=DEADLINE,
        )  # fmt: skip
        told.append(ran.stdout.split())
    assert told == [["0", "1"], ["1", "0"]]


def test_launches_do_not_wait_for_another_kernel_to_be_linked():
    class Library:
        def __init__(self):
            self.begun, self.loaded, self.calls = threading.Event(), threading.Event(), 0

        def get(self):
            self.calls += 1
            self.begun.set()
            assert self.loaded.wait(DEADLINE)
            return self.calls

    get = kernel_cache.one_at_a_time(Library.get)
    slow, other = Library(), Library()
    with ThreadPoolExecutor(3) as pool:
        both = [pool.submit(get, slow) for _ in range(2)]
        assert slow.begun.wait(DEADLINE)
        other.loaded.set()
        assert pool.submit(get, other).result(DEADLINE) == 1
        # the second thread waits for the first
        assert slow.calls == 1
        slow.loaded.set()
        assert sorted(one.result(DEADLINE) for one in both) == [1, 2]


TOGETHER = """
import threading
import numpy as np
from gpu.card.intrinsics import cuda
from gpu.card.kernel_cache import jit

def adding(number):
    def kernel(words):
        words[cuda.grid(1)] += number
    return kernel

cuda.current_context()  # numba does not start in several threads at once
kernels = [jit(adding(number)) for number in range(8)]
start = threading.Barrier(4)
sums = []

def launch():
    try:
        words = cuda.to_device(np.zeros(128, np.uint32))
        for kernel in kernels:
            start.wait()
            kernel[1, 128](words)
        sums.append(int(words.copy_to_host()[0]))
    except BaseException:
        start.abort()
        raise

threads = [threading.Thread(target=launch) for _ in range(4)]
for one in threads:
    one.start()
for one in threads:
    one.join()
print(*sums)
"""


@placement.NO_GPU
@pytest.mark.gpu
def test_threads_that_load_a_kernel_on_one_device(tmp_path):
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path), "PYTHONPATH": PATHS}
    for _ in range(2):  # compiled, then from the disk
        ran = subprocess.run(
            [sys.executable, "-c", TOGETHER], env=environment, capture_output=True, text=True,
            check=True, timeout=DEADLINE,
        )  # fmt: skip
        assert ran.stdout.split() == ["28"] * 4
