"""Fuzzing without I/O: bytes in, and for each target an independent oracle."""
