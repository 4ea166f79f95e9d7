"""Many messages through a ZeroMQ socket in one call, for the daemon and its clients.

libzmq      the functions of libzmq
receiving   messages in, not copied
copying     a message in, copied into one block and summed up
sending     messages out
"""
