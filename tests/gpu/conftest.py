"""Which tests of kernels run in this process: the end of a module's name says where it can run.

``_kernels.py`` and ``_gpu.py``: on a GPU or in numba's CUDA simulator. ``_card.py``: on a GPU
alone. ``_simulated.py``: in the simulator alone. Others need neither. numba reads
NUMBA_ENABLE_CUDASIM when it is imported, so a process has the simulator or the GPU, if any.
"""

from __future__ import annotations

from tests.gpu.placement import SIMULATED, usable

BOTH = ("_kernels.py", "_gpu.py")


def pytest_ignore_collect(collection_path):
    """Whether the tests of a module run in another process, or nowhere."""
    name = collection_path.name
    if not name.startswith("test_") or collection_path.is_dir():
        return None
    if name.endswith("_simulated.py"):
        return None if SIMULATED else True
    if name.endswith("_card.py"):
        return True if SIMULATED or not usable() else None
    if name.endswith(BOTH):
        return None if usable() else True
    return True if SIMULATED else None
