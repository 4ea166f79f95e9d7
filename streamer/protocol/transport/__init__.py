"""Many messages through a ZeroMQ socket in one call, for the daemon and its clients.

libzmq      libzmq's functions, and the kernel that receives a message
receiving   messages in, not copied
copying     a message in, copied into one block, with its checksum
sending     messages out
curve       keys of a socket, and who sent a message
handshakes  whether the other side was admitted
"""
