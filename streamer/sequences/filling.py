"""Constants shared by the parsers and the ``RecordBuffer`` that they fill."""

FILLED, RECORDS, NAMED, ODD, ENOUGH, MOST = range(6)
"""Indices into the state of a ``RecordBuffer``; see its ``columns``."""

MORE, FULL, CUT, FAULT, ROOM = range(5)
"""Why a parser stops: it needs more text; the buffer is full, at or within a record; a fault; the
buffer's columns need more room.
"""
