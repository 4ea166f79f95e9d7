"""``auto`` takes the device that ends first, and says why."""

from __future__ import annotations

import pytest

from gpu.card.device import Device
from streamer import device_choice
from streamer.batch.choice import choose
from streamer.cli import cost_model
from streamer.device_choice import START_SECONDS, Cost, choose_device


@pytest.fixture
def gpu(monkeypatch):
    """A CUDA device as far as the choice asks, with compiled kernels; how often it was started."""
    started = []

    def problem():
        started.append(True)

    monkeypatch.delenv("NUMBA_ENABLE_CUDASIM", raising=False)
    monkeypatch.setattr("gpu.card.device.driver_found", lambda: True)
    found = [Device(0, "a GPU", (9, 0), 1 << 30)]
    monkeypatch.setattr("gpu.card.device.devices", lambda: found)
    monkeypatch.setattr(device_choice, "cuda_problem", problem)
    monkeypatch.setattr(device_choice, "_stored_kernels", lambda: True)
    return started


def auto(work, threads=4, **options):
    said = []
    found = choose_device("auto", report=said.append, cost=work, threads=threads, **options)
    (line,) = said
    return found, line


def test_a_small_job_ends_before_a_gpu_has_started(gpu):
    found, line = auto(Cost(cpu=2.0, host=0.2))
    assert found == "cpu"
    assert line.startswith("matching on the CPU, ")
    assert line.endswith("(about 0.5 s, with a GPU 1.6 s)")
    assert gpu == []


def test_a_large_job_goes_to_the_gpu(gpu):
    assert auto(Cost(cpu=400.0, host=40.0))[0] == "cuda"
    assert gpu


def test_where_both_end_together(gpu):
    def work(seconds):
        return Cost(cpu=4 * seconds, host=0)

    least = START_SECONDS / (1 - 4 / device_choice._FASTER)
    assert auto(work(0.99 * least))[0] == "cpu"
    assert auto(work(1.01 * least))[0] == "cuda"


def test_more_threads_favour_the_cpu_if_there_are_cores(gpu, monkeypatch):
    work = Cost(cpu=40.0, host=4.0)
    for cores, last in ((64, "cpu"), (8, "cuda")):
        monkeypatch.setattr("trie.cpu.threads.usable_cores", lambda cores=cores: cores)
        assert [auto(work, threads)[0] for threads in (1, 8, 64)] == ["cuda", "cuda", last]


def test_a_gpu_that_waits_for_one_thread_gains_nothing_by_more(gpu):
    work = Cost(cpu=40.0, host=4.0, in_turn=20.0)
    assert [auto(work, threads)[0] for threads in (1, 8)] == ["cuda", "cpu"]


def test_kernels_that_have_to_be_compiled_first_count(gpu, monkeypatch):
    work = Cost(cpu=20.0, host=2.0)
    assert auto(work)[0] == "cuda"
    monkeypatch.setattr(device_choice, "_stored_kernels", lambda: False)
    assert auto(work)[0] == "cpu"


def test_of_unknown_size_or_with_a_kernel_of_cuda_it_is_the_gpu(gpu):
    assert auto(None)[0] == "cuda"
    assert auto(Cost(0, 0), kernel="shuffle")[0] == "cuda"


def test_without_a_gpu_the_reason_stays(monkeypatch):
    monkeypatch.setattr("gpu.card.device.driver_found", lambda: False)
    found, line = auto(Cost(0, 0))
    assert found == "cpu"
    assert line.endswith("(no CUDA driver or no CUDA device)")


def test_who_asks_for_a_device_gets_it(gpu):
    assert choose_device("cuda", cost=Cost(0, 0)) == "cuda"
    assert choose_device("cpu", cost=Cost(1e9, 0)) == "cpu"


def test_batch_methods_choose_alike(gpu):
    methods = {"both": ("cpu", "cuda"), "gpu": ("cuda",)}
    small, large = Cost(1, 0), Cost(1e4, 0)
    assert choose(methods, "both", None, "auto", cost=small, threads=4).device == "cpu"
    assert choose(methods, "both", None, "auto", cost=large, threads=4).device == "cuda"
    assert choose(methods, "both", "gpu", "auto", cost=small, threads=4).device == "cuda"
    assert choose(methods, "both", None, "cuda", cost=small, threads=4).device == "cuda"


def test_sizes_of_files(tmp_path):
    plain, packed = tmp_path / "a.fq", tmp_path / "b.fq.gz"
    plain.write_bytes(b"x" * 1000)
    packed.write_bytes(b"x" * 1000)
    assert cost_model.bases_of_files([str(plain), str(packed)]) == 5000
    assert cost_model.bases_of_files([str(plain), "-"]) is None
    assert cost_model.matching(["-"], None) is None
    near, exact = (cost_model.matching([str(plain)], distance) for distance in (2, None))
    assert near.cpu > exact.cpu
    assert cost_model.lcs(str(plain), str(plain)).cpu < cost_model.lcs(str(plain), str(packed)).cpu
