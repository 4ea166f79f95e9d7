"""The engine: chunks of the stream through the kernels, on any number of streams and cards.

errors     what can go wrong on a card, in one line
budget     the memory that may be taken, and what things take
kmer_set   the growing set of k-mers on the card
library    running sums and sorting, from CuPy
slot       one stream with its buffers, pinned and on the card
card       one device with its dictionary and its slots
staging    chunks packed ahead, a thread a chunk
pipeline   two streams (thesis 3.3.12) or the serial loop (3.3.9)
exchange   what several cards tell each other while they grow
leaving    the end of a process that has used several cards, or lost one
expand     compact results to arrays of the host
timeline   what ran when, from CUDA events (thesis Fig. 40, 41)
picture    a timeline as SVG
"""

from gpu.engine.errors import CardMemoryError, CudaEngineError, DeviceLostError, OutOfMemoryError
from gpu.engine.pipeline import Engine, Found, Piece
from gpu.engine.timeline import Timeline

__all__ = [
    "CardMemoryError",
    "CudaEngineError",
    "DeviceLostError",
    "Engine",
    "Found",
    "OutOfMemoryError",
    "Piece",
    "Timeline",
]
