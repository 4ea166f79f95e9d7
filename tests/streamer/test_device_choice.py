"""``auto`` takes the device that ends first, says why, and by what it judges."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace

import numpy as np
import pytest

from gpu.card.device import Device
from streamer import device_choice
from streamer.batch.choice import choose
from streamer.cli import cost_model
from streamer.device_choice import REFERENCE, Cost, Rates, choose_device, rates
from streamer.matching.spec import MatchSpec
from trie.cpu.compiling import KernelFolder, gpu_compilers

SLOWER_START = REFERENCE.start["cuda"] - REFERENCE.start["cpu"]


@pytest.fixture(autouse=True)
def reference(monkeypatch):
    """The rates of the machine of the documentation, whatever was measured here."""
    monkeypatch.setattr(device_choice, "rates", lambda: REFERENCE)


def work(cpu=0.0, in_turn=0.0, host=0.0, host_in_turn=0.0):
    return lambda: Cost("asm", cpu, in_turn, host, host_in_turn)


def unasked():
    raise AssertionError("nobody has to know")


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
    found, line = auto(work(cpu=2 * SLOWER_START, host=0.2))
    assert found == "cpu"
    assert line.startswith("matching on the CPU, ")
    cpu = REFERENCE.start["cpu"] + SLOWER_START / 2
    assert line.endswith(f"(about {cpu:.1f} s, with a GPU {REFERENCE.start['cuda'] + 0.05:.1f} s)")
    assert gpu == []


def test_a_large_job_goes_to_the_gpu_with_both_times(gpu):
    found, line = auto(work(cpu=400.0, host=40.0))
    assert found == "cuda"
    assert gpu
    cuda, cpu = REFERENCE.start["cuda"] + 10, REFERENCE.start["cpu"] + 100
    assert line == f"matching on a GPU (CUDA, about {cuda:.1f} s, on the CPU {cpu:.1f} s)"


def test_where_both_end_together(gpu):
    assert auto(work(cpu=4 * 0.99 * SLOWER_START))[0] == "cpu"
    assert auto(work(cpu=4 * 1.01 * SLOWER_START))[0] == "cuda"


def test_more_threads_favour_the_cpu_if_there_are_cores(gpu, monkeypatch):
    job = work(cpu=20 * SLOWER_START, host=2.0)
    for cores, last in ((64, "cpu"), (8, "cuda")):
        monkeypatch.setattr("trie.cpu.threads.usable_cores", lambda cores=cores: cores)
        assert [auto(job, threads)[0] for threads in (1, 8, 64)] == ["cuda", "cuda", last]


def test_a_gpu_that_waits_for_one_thread_gains_nothing_by_more(gpu):
    job = work(cpu=40.0, host=4.0, host_in_turn=20.0)
    assert [auto(job, threads)[0] for threads in (1, 8)] == ["cuda", "cpu"]


def test_nor_does_a_cpu_that_does(gpu):
    job = work(in_turn=5.0, host=4.0)
    assert [auto(job, threads)[0] for threads in (1, 8)] == ["cuda", "cuda"]


def test_kernels_that_have_to_be_compiled_first_count(gpu, monkeypatch):
    job = work(cpu=20.0, host=2.0)
    assert auto(job)[0] == "cuda"
    monkeypatch.setattr(device_choice, "_stored_kernels", lambda: False)
    assert auto(job)[0] == "cpu"


def test_kernels_of_the_package_are_not_compiled(monkeypatch, tmp_path):
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(device_choice, "SHIPPED", tmp_path)
    assert not device_choice._stored_kernels()
    (tmp_path / "gpu").mkdir()
    record = tmp_path / "gpu" / "made-for"
    record.write_text("Python 3.1, numba-cuda 0.1, numba 0.1, sources 0")
    assert not device_choice._stored_kernels()
    record.write_text(f"{gpu_compilers()}, sources 0")
    assert device_choice._stored_kernels()


def test_of_unknown_size_or_with_a_kernel_of_cuda_it_is_the_gpu(gpu):
    assert auto(None)[0] == auto(lambda: None)[0] == "cuda"
    assert auto(work(), kernel="shuffle")[0] == "cuda"


def test_measured_rates_scale_the_work_and_replace_the_start(gpu, monkeypatch):
    job = work(cpu=40.0, host_in_turn=9.0)
    assert auto(job)[0] == "cuda"
    measured = Rates({"cpu": 1.0, "cuda": 3.0}, {"cpu": {"asm": 0.5}, "cuda": {"lcs": 9.0}}, True)
    monkeypatch.setattr(device_choice, "rates", lambda: measured)
    found, line = auto(job)
    assert found == "cpu"
    assert line.endswith("(about 6.0 s, with a GPU 12.0 s)")


def test_stored_rates_are_those_of_this_machine(tmp_path, monkeypatch):
    def stored(**changed):
        found = {"machine": device_choice.machine(), "start": {"cpu": 0.5}, "factors": {}}
        (tmp_path / device_choice.RATES).write_text(json.dumps(found | changed))
        return rates.__wrapped__()

    monkeypatch.setattr(device_choice, "kernel_folder", lambda: KernelFolder(tmp_path))
    assert rates.__wrapped__() == REFERENCE
    assert stored() == Rates({"cpu": 0.5, "cuda": REFERENCE.start["cuda"]}, {}, True)
    assert stored(machine=["another", "CPU", 1]) == REFERENCE
    (tmp_path / device_choice.RATES).write_text("{")
    assert rates.__wrapped__() == REFERENCE


def test_without_a_gpu_the_reason_stays(monkeypatch):
    monkeypatch.setattr("gpu.card.device.driver_found", lambda: False)
    found, line = auto(unasked)
    assert found == "cpu"
    assert line.endswith("(no CUDA driver or no CUDA device)")


def test_who_asks_for_a_device_gets_it(gpu):
    assert choose_device("cuda", cost=unasked) == "cuda"
    assert choose_device("cpu", cost=unasked) == "cpu"


def test_batch_methods_choose_alike(gpu):
    methods = {"both": ("cpu", "cuda"), "gpu": ("cuda",)}
    small, large = work(), work(1e4)
    assert choose(methods, "both", None, "auto", cost=small, threads=4).device == "cpu"
    assert choose(methods, "both", None, "auto", cost=large, threads=4).device == "cuda"
    assert choose(methods, "both", "gpu", "auto", cost=small, threads=4).device == "cuda"
    assert choose(methods, "both", None, "cuda", cost=small, threads=4).device == "cuda"


def test_batch_searches_show_both_times_too(gpu):
    found = choose({"both": ("cpu", "cuda")}, "both", None, "auto", cost=work(400.0), threads=4)
    assert found.line().startswith("running on a GPU (CUDA, about ")


READS = "".join(f"@r{i} some words\n{'ACGTT' * 30}\n+\n{'I' * 150}\n" for i in range(3000))
SAM = "@HD\tVN:1.6\n" + "".join(
    f"r{i}\t4\t*\t0\t0\t*\t*\t0\t0\t{'ACGTT' * 30}\t{'I' * 150}\n" for i in range(3000)
)


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
@pytest.mark.parametrize("text", [READS, SAM, READS.replace("150", "1")])
def test_contents_are_estimated_from_the_beginning(tmp_path, text, pack):
    path = tmp_path / "reads"
    path.write_bytes(pack(text.encode()))
    found = cost_model.contents([str(path)] * 2)
    assert found.bases == pytest.approx(2 * 450_000, rel=0.1)
    assert found.records == pytest.approx(6000, rel=0.1)
    assert found.text == pytest.approx(2 * len(text), rel=0.1)
    assert found.stream == pytest.approx(0 if pack is bytes else len(text), rel=0.1)


def test_windows_of_many_short_records(tmp_path):
    path = tmp_path / "codes.fa"
    path.write_text("".join(f">p{i}\n{'ACGT' * 6}\n" for i in range(96)))
    assert cost_model.contents([str(path)]).windows(24) == pytest.approx(96)
    path.write_text(">one\n" + "ACGT" * 200_000)
    assert cost_model.contents([str(path)]).windows(24) == pytest.approx(800_000, rel=0.01)


def test_reads_without_a_size_go_on(gpu, monkeypatch):
    monkeypatch.setattr("trie.cpu.threads.usable_cores", lambda: 16)
    spec = MatchSpec.of(k=21, sources=())
    for mode, device in (("frozen", "cpu"), ("grow", "cuda")):
        cost = cost_model.matching(["-"], replace(spec, mode=mode))
        found, line = auto(lambda cost=cost: cost, threads=16)
        assert found == device
        assert "1 G bases: about " in line


def test_what_has_no_size_has_no_cost():
    assert cost_model.matching(["-"], MatchSpec.of(k=21, sources=("-",))) is None
    assert cost_model.asm("-", 1e-9) is None
    assert cost_model.primer("-", "-", 3) is None


def test_what_makes_matching_slower(tmp_path):
    reads, few, many = (tmp_path / name for name in ("reads.fq", "few.fa", "many.fa"))
    reads.write_text(40 * READS)
    few.write_text(">a\n" + "ACGTA" * 100)
    many.write_text(">a\n" + "ACGTA" * 400_000)

    def seconds(known, **asked):
        cost = cost_model.matching([str(reads)], MatchSpec.of(sources=(str(known),), **asked))
        return cost.beyond_start("cpu", 4)

    near = [seconds(many, k=21, distance=distance) for distance in (1, 2, 3)]
    assert near == sorted(near)
    assert seconds(few, k=21, distance=2) < near[1] / 2
    assert seconds(few, k=21) < seconds(many, k=21)
    assert seconds(many, k=21, mode="grow") > seconds(many, k=21)
    assert seconds(few, k=21, distance=1, semantics="ltb") > seconds(few, k=21, distance=1)


def test_similar_sequences_cost_less():
    rng = np.random.default_rng(5)
    one = rng.integers(0, 4, 200_000, dtype=np.uint8)
    seconds = []
    for share in (0.001, 0.01, 1.0):
        other = one.copy()
        changed = rng.random(one.size) < share
        other[changed] = (other[changed] + rng.integers(1, 4, changed.sum())) % 4
        seconds.append(cost_model.lcs(one, other, whole=False).beyond_start("cpu", 16))
    assert seconds[0] < seconds[1] < seconds[2]
    assert seconds[2] == cost_model.aligned(one.size**2).beyond_start("cpu", 16)
    assert cost_model.lcs(one, one, whole=True).beyond_start("cpu", 16) > 0
    assert cost_model.lcs(one[:3], one[:5], whole=False).beyond_start("cpu", 16) < 1e-6
