"""The configuration of the daemon: TOML in, checked settings out, every fault with its key.

tables      a model for each table: keys, types, defaults
faults      error messages in terms of the keys
origin      the line or option that set a key
toml_lines  the line of each key
loading     the whole process
"""

from streamer.daemon.config.loading import load
from streamer.daemon.config.tables import Config

__all__ = ["Config", "load"]
