"""Memory that a batch gives back stays with the process, for the next batch.

By default the allocator asks the kernel for large blocks and gives them back, and every thread has
pools of its own that are given back once empty, so that each batch is written to fresh pages: 256
page faults a megabyte, which cost more than all else that is done with it, and hold up the other
threads.
"""

from __future__ import annotations

import ctypes

# parameters of mallopt in glibc's malloc.h
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8
# the largest that it takes
_FROM_HEAP = 1 << 25
_KEPT = 1 << 30


def keep_freed() -> None:
    """From now on blocks below 32 MiB come from memory that is kept; without glibc nothing.

    Threads that have begun keep the pools that they have.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):
        return
    mallopt(_M_ARENA_MAX, 1)
    mallopt(_M_MMAP_THRESHOLD, _FROM_HEAP)
    mallopt(_M_TRIM_THRESHOLD, _KEPT)
