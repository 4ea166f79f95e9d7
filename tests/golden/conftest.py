"""The recorded session of the daemon uses the kit of the daemon's tests."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "streamer"))
