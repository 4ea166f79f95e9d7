"""What a parser and the ``RecordBuffer`` that it fills tell each other."""

FILLED, RECORDS, NAMED, ODD, ENOUGH, MOST = range(6)
"""Of the state of a ``RecordBuffer``: see ``columns`` there."""

MORE, FULL, CUT, FAULT, ROOM = range(5)
"""Why a parser stops: it needs more text; the buffer is full, also within a record; a fault; it
needs more room in the columns of the buffer."""
