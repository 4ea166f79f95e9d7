"""Hit words: one uint64 per hit, as read by streamer/batch/hamming/packed_hits.py.

63              36 35                                          8 7          0
[ start in chunk ] [ id, or on the GPU the pattern's index     ] [ distance ]
"""

from __future__ import annotations

START, ID = 36, 8  # the bits where start and id begin
ID_MASK = ((1 << START - ID) - 1) << ID
