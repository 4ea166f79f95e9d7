"""Places of windows in a text: key = window << 40 | tile << 12 | slack, uint64.

The window matches within k - 1 differences in a tile of columns, with at least k - 1 - slack
differences. A tile has 28 bits, the slack 12.
"""

from __future__ import annotations

import numpy as np

from gpu.card.intrinsics import device_function


@device_function
def key_of(window, tile):
    """The key of a place with no slack."""
    key = np.uint64(np.uint64(window) << np.uint64(40))
    return np.uint64(key | np.uint64(np.uint64(tile) << np.uint64(12)))
