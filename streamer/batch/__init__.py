"""Offline solvers: a subpackage a problem, with its paper's methods and a faster default."""
