"""Metrics for Prometheus, read from the status at each scrape.

exported        every metric: its name, labels, meaning, and the source of its values
target_series   reads by target and barcode, in a bounded number of series
device_memory   the memory of GPUs, without waiting for a GPU that hangs
scrape          the text of a scrape
metrics_server  the HTTP server, a thread of the daemon that cannot bring it down
"""
