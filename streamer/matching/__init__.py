"""From batches of reads to events: chunks, engines, and the dictionary that grows."""
