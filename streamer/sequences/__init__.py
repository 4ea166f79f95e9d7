"""Read any sequence file as batches of reads or as pieces of records."""
