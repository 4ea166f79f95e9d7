"""Watch a folder that a sequencer fills: send its reads as they come, each once."""
