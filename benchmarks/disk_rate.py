"""The speed of the disk under a journal: the bytes of its groups, written and synced alone."""

from __future__ import annotations

import mmap
import os
import time
from collections.abc import Sequence
from pathlib import Path

from streamer.journal.data_files import Sizes
from streamer.journal.disk import Disk
from streamer.journal.record_index import Index, RecordRow


def group_bytes(directory: Path, after: int) -> list[int]:
    """The bytes of each group of records that was committed after record ``after``."""
    sizes: list[int] = []
    place = None
    index = Index(directory)
    try:
        for row in index.records(after, index.state().head):
            assert isinstance(row, RecordRow)
            if place == (row.file, row.offset):
                sizes[-1] += row.size
            else:
                sizes.append(row.size)
            place = row.file, row.offset + row.size
    finally:
        index.close()
    return sizes


def seconds_alone(directory: Path, sizes: Sequence[int]) -> float:
    """Seconds for writes of these sizes, each synced, to a new file in a directory."""
    sizes = [Sizes().page_after(size) for size in sizes]
    content = memoryview(mmap.mmap(-1, max(sizes)))
    disk, path = Disk(), directory / "alone"
    descriptor = disk.create(path, sum(sizes))
    try:
        disk.bypass_cache(descriptor)
        begun, offset = time.perf_counter(), 0
        for size in sizes:
            disk.write(descriptor, offset, content[:size])
            disk.sync(descriptor)
            offset += size
        return time.perf_counter() - begun
    finally:
        os.close(descriptor)
        disk.delete(path)
