"""The state machines of the clients, without I/O.

What has happened goes in, with the time as an argument; messages come out. Nothing here imports
sockets, threads or clocks (a test says so). Blocking and asyncio clients are shells around it.

producer    which message goes out next, and what an answer means
subscriber  what the messages of the feed mean
"""
