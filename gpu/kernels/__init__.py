"""Kernels: one module a method."""
