"""A folder that a sequencer fills: its reads as they come, each once."""
