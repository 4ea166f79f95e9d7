"""The kernels of PMASM (PMASM paper, 5.3): the counters of several patterns in one word of 32 bits.

memory   uint32[groups, 5, m]   look-up memory (5.2): the fb_vector of a code at a level, a bit in
                                field p where symbol j of pattern p is another; code 4, a gap,
                                is a mismatch everywhere. 32 // b patterns a group, b bits a field
results  int32[r, windows]      result_table: the start where the distance is at most k, else -1

thread         one thread per window adds m fb_vectors and splits the sum               (5.3.1)
block_thread   a block of m threads a window: each thread gets one fb_vector into shared
               memory, thread 0 adds them up and splits the sum                         (5.3.2)
shared         as thread, the q + m - 1 symbols of a block's q windows in shared memory  (5.3.3)
"""

from __future__ import annotations

import numpy as np

from gpu.card.intrinsics import cuda, device_function

THREADS = 256  # threads per block of ``thread`` and ``shared``, the paper's q; any number
MAX_LENGTH = 256
_CHUNK = 1024 + MAX_LENGTH


@device_function
def split(bit_vector, group, bits, k, start, results):
    """Compare every counter of a group with the threshold and write the result table."""
    fields = np.uint32(np.uint32(32) // bits)
    field = np.uint32(np.uint32(np.uint32(1) << bits) - np.uint32(1))
    p = np.uint32(group * fields)
    last = min(np.uint32(p + fields), np.uint32(results.shape[0]))
    while p < last:
        near = np.uint32(bit_vector & field) <= k
        results[p, start] = np.int32(start) if near else np.int32(-1)
        bit_vector = np.uint32(bit_vector >> bits)
        p = np.uint32(p + np.uint32(1))


def thread(codes, windows, memory, bits, k, results):
    """The kernel; ``[grid, THREADS]``, grid * THREADS >= windows.

    Arguments: codes uint8[windows + m - 1], windows uint32, memory as above, bits, k uint32,
    results as above.
    """
    start = np.uint32(cuda.grid(1))
    if start >= windows:
        return
    for group in range(memory.shape[0]):
        bit_vector = np.uint32(0)
        for level in range(memory.shape[2]):
            code = codes[start + np.uint32(level)]
            bit_vector = np.uint32(bit_vector + memory[group, code, level])
        split(bit_vector, np.uint32(group), bits, k, start, results)


def block_thread(codes, windows, memory, bits, k, results):
    """The kernel; ``[windows, m]``. Arguments as ``thread``."""
    fb_vec_rlt = cuda.shared.array(MAX_LENGTH, np.uint32)
    start = np.uint32(cuda.blockIdx.x)
    level = np.uint32(cuda.threadIdx.x)
    code = codes[start + level]
    for group in range(memory.shape[0]):
        fb_vec_rlt[level] = memory[group, code, level]
        cuda.syncthreads()
        if level == np.uint32(0):
            bit_vector = np.uint32(0)
            for other in range(memory.shape[2]):
                bit_vector = np.uint32(bit_vector + fb_vec_rlt[other])
            split(bit_vector, np.uint32(group), bits, k, start, results)
        cuda.syncthreads()


def shared(codes, windows, memory, bits, k, results):
    """The kernel; launch and arguments as ``thread``, THREADS <= 1024."""
    chunk = cuda.shared.array(_CHUNK, np.uint8)
    first = np.uint32(np.uint32(cuda.blockIdx.x) * np.uint32(cuda.blockDim.x))
    symbols = np.uint32(np.uint32(windows + np.uint32(memory.shape[2])) - np.uint32(1))
    own = np.uint32(cuda.threadIdx.x)
    at = own
    while at < np.uint32(np.uint32(cuda.blockDim.x) + np.uint32(memory.shape[2])):
        if np.uint32(first + at) < symbols:
            chunk[at] = codes[np.uint32(first + at)]
        at = np.uint32(at + np.uint32(cuda.blockDim.x))
    cuda.syncthreads()
    start = np.uint32(first + own)
    if start >= windows:
        return
    for group in range(memory.shape[0]):
        bit_vector = np.uint32(0)
        for level in range(memory.shape[2]):
            code = chunk[np.uint32(own + np.uint32(level))]
            bit_vector = np.uint32(bit_vector + memory[group, code, level])
        split(bit_vector, np.uint32(group), bits, k, start, results)


KERNELS = {"pmasm-thread": thread, "pmasm-block-thread": block_thread, "pmasm-shared": shared}
