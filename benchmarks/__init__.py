"""Benchmarks: each returns rows of figures; the command line prints them."""
