"""References: their k-mers, their targets, saving and loading."""
