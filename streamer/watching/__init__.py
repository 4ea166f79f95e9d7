"""Watch a folder that a sequencer fills: send its reads as they come, each once."""

SETTLE_SECONDS = 5.0
"""Without change for so long a file counts as complete, unless the user asks for another time."""

PASSED_OVER = ": passed over"
"""The end of the error of a read that is larger than a batch; the daemon counts these lines."""
