"""``streamer top`` as a page of a terminal: what the live page shows, without a browser.

wording    numbers, sizes, times, bars and curves as text
overview   the upper part: state, throughput, latency, queues, GPUs, what is wrong
listings   the tables below: targets, barcodes, producers, latency, novelty
top_page   the page: keys, what is drawn where
showing    follows a daemon until it ends, is lost, or the user leaves

All but the last two are plain functions from the fields of ``streamer.web.model`` to text, and only
``top_page`` needs the package textual.
"""
