"""From batches of reads to events: chunks, engines, and growing dictionaries."""
