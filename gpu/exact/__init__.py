"""Exact matching on the GPU: chunks of the stream against a dictionary that may grow.

pipeline            the engine (gpu/card/streams): devices, streams, chunks in flight
device_tree         a snapshot on the GPU, and the layouts derived from it there
chunk_match         one chunk against a snapshot with any kernel; kernels shuffle and naive
walk, bucket_table  the other two kernels
reference_index     the index of a reference text, and its kernel
kmer_set            the growing set of k-mers
expand              compact results to arrays of the host
"""

from gpu.card.cuda_errors import CardMemoryError, CudaEngineError, DeviceLostError, OutOfMemoryError
from gpu.exact.pipeline import ChunkFound, ChunkPiece, Pipeline

__all__ = [
    "CardMemoryError",
    "ChunkFound",
    "ChunkPiece",
    "CudaEngineError",
    "DeviceLostError",
    "OutOfMemoryError",
    "Pipeline",
]
