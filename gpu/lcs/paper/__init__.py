"""The LCS paper's CUDA method as published: a baseline for the systolic kernel."""
