"""The exchange between cards that grow the same dictionary.

Each card inserts a chunk of its own into its own set and finds first windows among what it knows:
every first window of the stream is one of them. Then each card inserts what the others found, with
the positions. A minimum does not depend on the order, so all sets agree, and a window that is still
the first of its k-mer is so in the whole stream. Only candidates travel, 16 bytes each.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from gpu.exact.card import ExactCard
from gpu.exact.expand import mismatched
from gpu.exact.flight import ExactFlight


def exchange(cards: Sequence[ExactCard], flights: Collection[ExactFlight], threads: int) -> None:
    """Bring the sets of all cards together; afterwards every flight decides again.

    flights: in flight, at most one a card.
    """
    candidates = []
    for flight in flights:
        with flight.card.active():
            found = flight.land()
        assert found.codes is not None
        starts = mismatched(found.starts, found.matches, 0, threads)
        values = starts.astype(np.uint64) + flight.base
        candidates.append((flight.card, found.codes.copy(), values))
    for card in cards:
        assert card.kmers is not None
        with card.active():
            for other, codes, values in candidates:
                if other is not card:
                    card.kmers.add(codes, values, card.slots[0].stream)
    for flight in flights:
        with flight.card.active():
            flight.decide_again()
