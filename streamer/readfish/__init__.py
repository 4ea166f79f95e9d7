"""An aligner for readfish: ``[mapper_settings."streamer.readfish"]`` in its TOML file."""

from streamer.readfish.aligner import Aligner

__all__ = ["Aligner"]
