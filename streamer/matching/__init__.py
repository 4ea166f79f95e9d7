"""From batches of reads to events: chunks, engines, and growing dictionaries.

matcher         one stream of reads: batches in, results out
match_engine    cuts batches into chunks for an engine: cpu or cuda
reports         results as columns; running_report adds up those of many batches
api             the same for Python
"""
