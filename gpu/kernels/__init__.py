"""Kernels: one package a problem, one module a method."""
