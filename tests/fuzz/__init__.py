"""Fuzzing without I/O: bytes in, and for each target an independent statement of what is right."""
