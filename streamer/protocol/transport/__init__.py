"""ZeroMQ sockets of the daemon and its clients.

frames      sends and receives many messages in one call, and counts what waits
curve       keys of a socket, the sender of a message, and whether the other side admitted this one
"""
