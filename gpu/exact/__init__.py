"""Exact matching on the GPU: chunks of the stream against a dictionary that may grow.

pipeline         the engine (gpu/card/streams)
card, slot       one device with its dictionary; one stream with its buffers
flight           one chunk in flight
expand           compact results to arrays of the host
device_tree      a snapshot on the GPU; derive: the layouts derived from it there
chunk_match      one chunk against a snapshot, with any kernel
kernels          the kernels by name: walk, bucket_table, shuffle, naive
kmer_set         the growing set of k-mers; kmer_set_kernels: its layout and kernels
"""

from gpu.card.cuda_errors import CardMemoryError, CudaEngineError, DeviceLostError, OutOfMemoryError
from gpu.card.streams import Timeline
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
