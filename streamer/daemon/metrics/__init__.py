"""Metrics for Prometheus, read from the status at each scrape.

scrape          every metric: its name, labels, meaning, and the source of its values
device_memory   the memory of GPUs, without waiting for a GPU that hangs
metrics_server  the HTTP server, a thread of the daemon that cannot bring it down
"""
