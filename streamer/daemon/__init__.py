"""The daemon: reads in over one socket, matched in order, results out over another.

Four threads, each with its own sockets: ingest accepts batches, the engine matches them, the feed
publishes the results, control answers requests. A batch flows through them in this order, and its
credit returns to its producer when its results are out.

This module imports nothing, so a process that needs only one of its packages starts quickly.
"""
