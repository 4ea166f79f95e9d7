"""The primer paper's methods as published: baselines for the faster methods.

The faster methods also use ``alternative`` for long matches.
"""
