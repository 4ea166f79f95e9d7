"""The state machines of the clients, without I/O.

Events go in, with the time as an argument; messages come out. Nothing here imports sockets, threads
or clocks (a test checks this). The blocking and asyncio clients are shells around it.

producer    which message goes out next, and what an answer means
subscriber  what the messages of the feed mean
"""
