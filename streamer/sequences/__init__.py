"""Any sequence file as batches of reads or pieces of texts."""
