"""kmer-streamer: reads in over ZeroMQ, live k-mer matches, mismatches and new k-mers out."""

__version__ = "0.1.0"
