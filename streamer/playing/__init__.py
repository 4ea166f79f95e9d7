"""A run played: real reads with the timing of a sequencer, and its files."""
