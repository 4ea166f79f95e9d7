"""The LCS paper's methods as published: baselines that the faster methods are measured by."""
