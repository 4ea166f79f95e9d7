"""Watch a folder that a sequencer fills: send its reads as they come, each once."""

SETTLE_SECONDS = 5.0
"""Without change for so long a file counts as complete, unless the user asks for another time."""
