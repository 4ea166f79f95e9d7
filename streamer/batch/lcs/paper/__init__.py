"""The LCS paper's methods as published: baselines for the faster methods."""
