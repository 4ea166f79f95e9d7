"""What a kept kernel is named by, in this process and in others; on a card, that it is loaded.

Kernels for a package are listed and compiled without a card.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest

from gpu.asm import bit_parallel, listing
from gpu.card import device, kernel_cache
from gpu.card.intrinsics import numba_type
from gpu.card.kernel_cache import PACKAGES, made
from gpu.exact import bucket_table, kmer_set
from gpu.hamming import bit_sliced, network
from tests.data_files import ROOT
from tests.gpu import placement
from tests.waiting import DEADLINE
from trie.cpu import compiling, jit

PATHS = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])


class Codegen:
    def magic_tuple(self):
        return (9, 0)


def use(monkeypatch, capability):
    """Make a device of this kind the current one."""
    device = SimpleNamespace(compute_capability=capability)
    for module in (kernel_cache.cuda, kernel_cache.dispatcher):
        monkeypatch.setattr(module, "get_current_device", lambda: device)
    context = SimpleNamespace(device=device)
    monkeypatch.setattr(kernel_cache.codegen.devices, "get_context", lambda: context)


class Target:  # its refresh() would import the implementations of all functions
    def codegen(self):
        return Codegen()


def names():
    """The files of some kernels."""
    kernels = [
        made(kmer_set.find, 7, True), made(kmer_set.find, 7, False), made(kmer_set.values, 7, True),
        made(bucket_table.finish, bucket_table.choose_shape(15, 1000)),
        made(bit_sliced.bit_sliced, network.shape_for(12, 4)),
        made(bit_sliced.bit_sliced, network.shape_for(12, 4), registers=96),
        made(bit_parallel.strip_kernel, bit_parallel.Strip(8, True, 6, 4), 128),
        made(listing.count, 64, 32), kernel_cache.plain(kmer_set.add),
    ]  # fmt: skip
    types = ("uint32", "uint64")
    place, device = Path(), Codegen()
    return [kernel._cache.path(place, kind, device).name for kernel in kernels for kind in types]


@pytest.mark.whole
def test_other_processes_have_the_same_names():
    mine = names()
    assert len(set(mine)) == len(mine)
    program = "from tests.gpu.card.test_kernel_cache import names; print(*names())"
    environment = os.environ | {"PYTHONHASHSEED": "7", "PYTHONPATH": PATHS}
    ran = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True,
        check=True, timeout=DEADLINE,
    )  # fmt: skip
    assert ran.stdout.split() == mine


def test_another_source_has_another_name(tmp_path, monkeypatch):
    assert kernel_cache._ROOT == ROOT
    assert all((ROOT / package / "__init__.py").is_file() for package in PACKAGES)
    digests = set()
    monkeypatch.setattr(kernel_cache, "_ROOT", tmp_path)
    (tmp_path / "trie" / "cpu").mkdir(parents=True)
    for text in ("THREADS = 64", "THREADS = 32"):
        (tmp_path / "trie" / "cpu" / "new.py").write_text(text)
        digests.add(kernel_cache._sources.__wrapped__())
    assert len(digests) == 2


def test_a_kernel_is_looked_for_without_what_compiling_needs(tmp_path, monkeypatch):
    monkeypatch.setattr(kernel_cache, "_directory", lambda: tmp_path)
    use(monkeypatch, (9, 0))
    assert kernel_cache._Stored(("name", ()), None).load_overload("uint32", Target()) is None


def test_the_context_is_created_while_packages_are_imported(monkeypatch):
    called = []

    class Driver:
        def cuInit(self, flags):
            called.append("cuInit")
            return len(called) - 1  # fails the second time

        def cuDevicePrimaryCtxRetain(self, context, number):
            called.append(number)

    def load(name):
        if len(called) == 3:
            raise OSError(name)  # not shown: ``devices`` says that there is no driver
        return Driver()

    monkeypatch.setattr("gpu.card.device.ctypes.CDLL", load)
    begin = device.begin_context.__wrapped__
    monkeypatch.setenv("NUMBA_ENABLE_CUDASIM", "1")
    begin()
    assert called == []
    monkeypatch.delenv("NUMBA_ENABLE_CUDASIM")
    for _ in range(3):
        begin()
        for thread in threading.enumerate():
            if thread.name == "context":
                thread.join(DEADLINE)
    assert called == ["cuInit", 0, "cuInit"]


def test_a_function_in_another_has_no_name():
    with pytest.raises(AssertionError, match="functions of one name"):
        kernel_cache.plain(lambda words: None)


LISTING = """
from scripts.gpu_kernels import listed, prepare
prepare()
job = "match reads.fq -k 21 --seed 900 --report reads --device cuda"
raise SystemExit(listed(tuple(job.split())))
"""

SHIPPING = """
import sys
from pathlib import Path
from gpu.card.kernel_cache import made_for
from scripts.gpu_kernels import compiled
for file in sys.argv[2:]:
    compiled((file, sys.argv[1]))
Path(sys.argv[1], "made-for").write_text(made_for())
"""


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    """The folder of a package with one kernel, and the names of all that a job launches."""
    work = tmp_path_factory.mktemp("package")
    listed, gpu = work / "listed", work / "compiled" / "gpu"
    listed.mkdir()
    gpu.mkdir(parents=True)

    def run(program, *arguments, **settings):
        subprocess.run(
            [sys.executable, "-c", program, *arguments], cwd=work, check=True, timeout=DEADLINE,
            env=os.environ | {"PYTHONPATH": PATHS} | settings, stdout=subprocess.DEVNULL,
        )  # fmt: skip

    run(LISTING, NUMBA_ENABLE_CUDASIM="1", STREAMER_LISTED_KERNELS=str(listed))
    found = {str(file): pickle.loads(file.read_bytes())[0] for file in listed.iterdir()}
    run(
        SHIPPING, str(gpu), *[file for file, function in found.items() if function is kmer_set.wipe]
    )
    return gpu, {function.__name__ for function in found.values()}


@pytest.mark.whole
def test_kernels_of_a_job_are_listed_up_to_those_for_what_is_found(package):
    assert package[1] == {"wipe", "clear_words", "claim", "decide", "compact"}


@pytest.fixture
def wipe(package, monkeypatch, tmp_path, caplog):
    """Load a kernel on a device: its code, a library, or None; and what is logged."""
    monkeypatch.setattr(compiling, "SHIPPED", package[0].parent)
    monkeypatch.setattr(kernel_cache, "shipped_folder", kernel_cache.shipped_folder.__wrapped__)
    monkeypatch.setattr(kernel_cache, "_directory", lambda: None)

    def load(*capability):
        use(monkeypatch, capability)
        types = (numba_type("uint64[::1]"),)
        kernel = kernel_cache._kernel(kmer_set.wipe, None)._cache.load_overload(types, Target())
        return kernel and kernel.library, caplog.text

    return load


get_cubin = kernel_cache.one_at_a_time(lambda library: library.get_cubin())


@pytest.mark.whole
@pytest.mark.parametrize("capability", [(8, 0), (8, 9), (9, 0), (10, 3), (12, 1)])
def test_a_kernel_of_the_package_is_loaded(wipe, capability):
    code, logged = wipe(*capability)
    known = code._cubin_cache[(*capability, "a" * (capability >= (9, 0)))]
    assert known.code[:4] == b"\x7fELF"
    # and used as it is
    assert get_cubin(code) is known
    assert not logged
    assert not code._llvm_strs


@pytest.mark.whole
def test_a_kernel_of_the_package_is_compiled_for_a_further_device(wipe, monkeypatch, caplog):
    """Each device of a host takes what the package has for it; one without is no harm to others."""
    code, _ = wipe(9, 0)
    known = dict(code._cubin_cache)
    use(monkeypatch, (7, 5))
    assert get_cubin(code).code[:4] == b"\x7fELF"
    assert {*code._cubin_cache} - {*known} == {(7, 5, "")}
    assert caplog.text.count("the package has no kernels for GPUs of 7.5") == 1
    use(monkeypatch, (8, 6))
    assert get_cubin(code) is known[8, 6, ""]


@pytest.mark.whole
def test_a_kernel_of_the_package_for_other_devices_or_sources(wipe, package, monkeypatch):
    (file,) = package[0].glob("*.kernel")
    content = file.read_bytes()
    middle = len(content) // 2
    file.write_bytes(content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :])
    monkeypatch.setattr(jit, "_warned", set())
    code, logged = wipe(9, 0)
    file.write_bytes(content)
    assert code is None
    assert f"{file}: a kernel is unreadable, so it is compiled: it is damaged" in logged
    code, logged = wipe(7, 5)
    assert code is None
    assert "the package has no kernels for GPUs of 7.5" in logged
    monkeypatch.setattr(kernel_cache, "_sources", lambda: "others")
    monkeypatch.setattr(kernel_cache, "made_for", kernel_cache.made_for.__wrapped__)
    code, logged = wipe(9, 0)
    assert code is None
    assert "the package's GPU kernels are not used, they are for Python 3." in logged


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
from gpu.card.kernel_cache import made

def adding(number):
    def kernel(words):
        words[cuda.grid(1)] += number
    return kernel

cuda.current_context()  # numba does not start in several threads at once
kernels = [made(adding, number) for number in range(8)]
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
