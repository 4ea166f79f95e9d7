"""kmer-streamer: reads in over ZeroMQ, live k-mer matches, mismatches and new k-mers out.

From Python: ``Dictionary`` and ``Matcher`` match reads; ``streamer.client`` and ``streamer.aio``
talk to a daemon; ``streamer.batch`` has the searches.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from streamer.dictionary.targets import Dictionary
    from streamer.matching.api import Matcher

__all__ = ["Dictionary", "Matcher", "__version__"]
__version__ = "0.9.0"


def __getattr__(name: str) -> Any:
    # import these on demand: commands that need neither start sooner
    if name == "Dictionary":
        from streamer.dictionary.targets import Dictionary

        return Dictionary
    if name == "Matcher":
        from streamer.matching.api import Matcher

        return Matcher
    raise AttributeError(f"module 'streamer' has no attribute '{name}'")
