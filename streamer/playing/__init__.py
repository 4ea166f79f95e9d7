"""Play back a run: real reads with the timing of a sequencer, and the files it would write."""
