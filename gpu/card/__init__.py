"""What every kernel package needs of a CUDA device: errors, memory, streams, compiled kernels."""
