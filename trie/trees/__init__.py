"""The two growing trees of the thesis (3.3.4, 3.3.13)."""
