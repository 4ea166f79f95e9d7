"""Copies move as many elements as asked, from the beginning of both arrays."""

from __future__ import annotations

import numpy as np
import pytest

from gpu.card.intrinsics import cuda
from gpu.card.memory import fetch, send
from tests.gpu import placement

pytestmark = placement.marks()


@pytest.mark.parametrize("dtype", [np.uint8, np.uint32, np.uint64])
@pytest.mark.parametrize(("size", "back"), [(7, None), (7, 3), (7, 0), (0, None)])
def test_a_part_goes_there_and_back(dtype, size, back):
    stream = cuda.stream()
    here, again = cuda.pinned_array(10, dtype), cuda.pinned_array(10, dtype)
    here[:] = np.arange(1, 11)
    again[:] = 99
    there = cuda.device_array(size, dtype)
    send(here, there, stream)
    fetch(there, again, stream, back)
    stream.synchronize()
    moved = size if back is None else back
    assert again.tolist() == [*range(1, moved + 1), *[99] * (10 - moved)]
    with pytest.raises(AssertionError):
        fetch(there, again, stream, size + 1)
