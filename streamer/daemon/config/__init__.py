"""The configuration of the daemon: TOML in, checked settings out, every fault with its key.

tables      a model each: keys, types, defaults
faults      what is wrong, in the words of the keys
origin      the line or the option that set a key
toml_lines  the line of each key
loading     all of it
"""

from streamer.daemon.config.loading import load
from streamer.daemon.config.tables import Config

__all__ = ["Config", "load"]
