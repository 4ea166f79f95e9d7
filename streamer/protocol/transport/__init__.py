"""Many messages through a ZeroMQ socket in one call, for the daemon and its clients.

libzmq      libzmq's functions, and the kernel that receives a message
receiving   receives messages without copying them
copying     receives a message into one block of memory, with its checksum
sending     sends messages
held        counts the bytes of sent messages that wait in libzmq
curve       keys of a socket, and the sender of a message
handshakes  whether the other side admitted this one
"""
