"""CUDA support shared by all kernels: errors, memory, streams, compiled kernels."""
