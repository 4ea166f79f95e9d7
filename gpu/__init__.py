"""Everything that needs CUDA. Import it only when a GPU is requested."""
