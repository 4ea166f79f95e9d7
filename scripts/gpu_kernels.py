"""Compile the GPU kernels of all commands for a package, on a machine with or without a GPU.

`python -m scripts.gpu_kernels FOLDER`, where FOLDER has the kernels of `streamer warm-up --ship`;
CPU kernels that are only used beside a GPU are added to it. The jobs of `streamer warm-up` run in
numba's simulator, where kernels only note the types of their arguments (`Listed`). Then each is
compiled for all ARCHITECTURES: that needs numba-cuda and nvJitLink (extra gpu-test), but no device.
"""

import hashlib
import multiprocessing
import os
import pickle
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from types import SimpleNamespace

from trie.cpu import compiling
from trie.cpu.threads import usable_cores

LISTED = "STREAMER_LISTED_KERNELS"


class Listed:
    """In place of a kernel; how: the arguments of `kernel_cache._kernel`."""

    def __init__(self, *how, **options):
        self._how = (*how, options)

    def __getitem__(self, launch):
        return self

    def __call__(self, *arguments):
        from numba import typeof

        arrays = [getattr(argument, "_ary", argument) for argument in arguments]
        how, types = pickle.dumps(self._how), tuple(map(typeof, arrays))
        # types of one name are pickled differently in each process
        name = hashlib.sha256(how + repr(types).encode()).hexdigest()
        Path(os.environ[LISTED], name).write_bytes(pickle.dumps((*self._how, types)))
        for array in arrays:
            if getattr(array, "shape", None) == (1,):
                # a counter: as if something was found, so that the kernels for it are listed too
                array[0] = 1


def prepare():
    """Make this process one that lists kernels; arrays on its device are zero."""
    import numpy as np
    from numba.cuda.simulator.cudadrv import devices

    from gpu.card import kernel_cache

    kernel_cache._kernel = Listed
    kernel_cache.cuda.device_array = lambda shape, dtype=float, stream=0: (
        kernel_cache.cuda.to_device(np.zeros(shape, dtype))
    )
    devices.FakeCUDAContext.name = "simulator"
    memory = SimpleNamespace(free=64 << 30, total=64 << 30)
    devices.FakeCUDAContext.get_memory_info = lambda self: memory
    devices.FakeCUDADevice.MULTIPROCESSOR_COUNT = 132  # some kernels are chosen by it


def listed(job):
    """Run a job of warm-up; its exit code."""
    from streamer.cli.warm_up import run_job, write_files

    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        write_files(Path(folder))
        nowhere = os.open(os.devnull, os.O_RDWR)
        os.dup2(nowhere, 1)
        os.close(nowhere)
        try:
            return run_job(job)
        finally:
            os.chdir("/")


def compiled(task):
    """Compile a listed kernel into a folder; the size of its file."""
    from numba.cuda import codegen, dispatcher

    from gpu.card import kernel_cache

    device = SimpleNamespace(compute_capability=kernel_cache.ARCHITECTURES[0])
    dispatcher.get_current_device = lambda: device
    codegen.devices.get_context = lambda: SimpleNamespace(device=device)
    file, folder = task
    origin, arguments, options, types = pickle.loads(Path(file).read_bytes())
    kernel = kernel_cache._kernel(origin, arguments, **options)
    made = dispatcher._Kernel(kernel.py_func, types, **kernel.targetoptions)
    library, code = made.library, {}
    for major, least in kernel_cache.ARCHITECTURES:
        # by the names that numba-cuda has for the devices that run it
        names = [(major, minor, "a" * (major >= 9)) for minor in range(least, 10)]
        code |= dict.fromkeys(names, library.get_cubin((major, least, "")))
    # nothing else is needed, and it would be read at each start
    library._cubin_cache, library._ptx_cache, library._linkerinfo_cache = code, {}, {}
    library._llvm_strs = []
    path = kernel._cache.path(Path(folder), types)
    kernel_cache._store(path, made)
    path.chmod(0o644)
    return path.stat().st_size


def each(work, tasks, prepared=None, **settings):
    """The results of tasks, in processes with these settings in their environment."""
    os.environ.update(settings)
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(usable_cores(), context, prepared) as pool:
        yield from zip(tasks, pool.map(work, tasks), strict=True)


def main():
    from streamer.cli.warm_up import SERVE, jobs

    folder = Path(sys.argv[1]).resolve()
    into = folder / compiling.GPU_FOLDER
    into.mkdir(parents=True, exist_ok=True)
    # a daemon has the kernels of `match`
    tasks = [job for job in jobs("cuda") if job[0] != SERVE]
    with tempfile.TemporaryDirectory() as names:
        for level in [name for name in compiling.LEVELS if (folder / name).is_dir()] or [""]:
            own = {"NUMBA_CPU_NAME": level, "NUMBA_CPU_FEATURES": compiling.LEVELS.get(level, "")}
            own = own | {compiling.SHIP: str(folder / level)} if level else {}
            for job, code in each(
                listed, tasks, prepare, NUMBA_ENABLE_CUDASIM="1", **{LISTED: names}, **own
            ):
                if code:
                    sys.exit(f"streamer {' '.join(job)}: exit code {code}")
        files = [(os.path.join(names, name), str(into)) for name in os.listdir(names)]
        sizes = [size for _, size in each(compiled, files, NUMBA_ENABLE_CUDASIM="0")]
    from gpu.card.kernel_cache import made_for

    (into / compiling.MADE_FOR).write_text(made_for())
    print(f"{len(sizes)} GPU kernels, {sum(sizes) / 1e6:.1f} MB, in {into}")


if __name__ == "__main__":
    main()
