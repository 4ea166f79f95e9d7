"""The engine: chunks of the stream through the kernels, on any number of streams and cards.

pipeline         two streams (thesis 3.3.12) or the serial loop (3.3.9)
card, slot       one device with its dictionary; one stream with its buffers
flight           one chunk on its way
staging          chunks packed ahead, a thread a chunk
exchange         what several GPUs tell each other while they grow
expand           compact results to arrays of the host
device_tree      a snapshot on the GPU; derive: what is made of it there
chunk_match      one chunk against a snapshot, with any kernel
kernels          the kernels by name: walk, bucket_table, shuffle, naive
kmer_set         the growing set of k-mers; kmer_set_kernels: its layout and kernels
"""

from gpu.card.errors import CardMemoryError, CudaEngineError, DeviceLostError, OutOfMemoryError
from gpu.card.timeline import Timeline
from gpu.exact.pipeline import ChunkFound, ChunkPiece, Pipeline

__all__ = [
    "CardMemoryError",
    "ChunkFound",
    "ChunkPiece",
    "CudaEngineError",
    "DeviceLostError",
    "OutOfMemoryError",
    "Pipeline",
    "Timeline",
]
