"""What several cards tell each other while they grow the same dictionary.

Each card puts a chunk of its own into its own set and finds first windows among what it knows:
every first window of the stream is one of them. Then each card puts in what the others found, with
the positions; a minimum does not ask for the order, so all sets agree, and what is still the
first window of its k-mer is so in the whole stream. Only candidates travel, 16 bytes each.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gpu.exact.card import ExactCard
from gpu.exact.expand import mismatched
from gpu.exact.flight import Flight


def tell_all(cards: Sequence[ExactCard], flights: Sequence[Flight], threads: int) -> None:
    """Bring the sets of all cards together; afterwards every flight decides again.

    ``flights``: one a card at most, sent and not landed.
    """
    heard = []
    for flight in flights:
        found = flight.land()
        assert found.codes is not None
        starts = mismatched(found.starts, found.matches, 0, threads)
        heard.append((flight.card, found.codes.copy(), starts.astype(np.uint64) + flight.base))
    for card in cards:
        assert card.kmers is not None
        with card.active():
            for other, codes, values in heard:
                if other is not card:
                    card.kmers.add(codes, values, card.slots[0].stream)
    for flight in flights:
        flight.decide_again()
