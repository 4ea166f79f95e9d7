"""The methods of the primer paper as published: baselines that the faster methods are measured by.

``alternative`` also serves the faster methods, where a match has grown long.
"""
