"""The configuration of the daemon: TOML in, checked settings out, every fault with its key.

tables      a model for each table: keys, types, defaults, what does not fit together
loading     the whole process: files, options, faults with the line or option that set a key
"""

from streamer.daemon.config.loading import load, load_panel
from streamer.daemon.config.tables import Config

__all__ = ["Config", "load", "load_panel"]
