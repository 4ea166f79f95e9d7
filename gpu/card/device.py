"""Which CUDA devices this process can use."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Device:
    """One CUDA device: its number, name, compute capability and memory in bytes."""

    number: int
    name: str
    capability: tuple[int, int]
    memory_bytes: int


def devices() -> list[Device]:
    """The usable CUDA devices; RuntimeError, in one line, if there is none."""
    try:
        from numba import cuda
    except ImportError as error:
        message = f"the CUDA packages are not installed ({error}): pip install 'kmer-streamer[gpu]'"
        raise RuntimeError(message) from None
    try:
        if not cuda.is_available():
            message = "no CUDA driver or no CUDA device"
            raise RuntimeError(message)
        found = []
        for number, handle in enumerate(cuda.gpus):
            with handle:
                context = cuda.current_context()
                name = handle.name.decode() if isinstance(handle.name, bytes) else str(handle.name)
                found.append(
                    Device(
                        number,
                        name,
                        tuple(handle.compute_capability),
                        int(context.get_memory_info().total),
                    )
                )
    except RuntimeError:
        raise
    except Exception as error:
        message = f"CUDA does not start: {' '.join(str(error).split())}"
        raise RuntimeError(message) from None
    return found
