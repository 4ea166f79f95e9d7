"""What ``streamer.client`` offers, one idea a module."""
