"""Kernels of the nearest k-mer: ``index`` makes the tables in which ``search`` looks up."""
