"""What all kernels need of a CUDA device: errors, memory, streams, compiled kernels."""
