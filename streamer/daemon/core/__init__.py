"""The state machines of the daemon, without I/O.

Events go in, with the time as an argument; messages and batches come out. Nothing here imports
sockets, threads, clocks or the journal (a test checks this), except the journal's data types, so a
simulator can run all of it unchanged.

ingest      messages of producers: accepted, repeated or refused, acknowledged
producers   the state of each producer; credit; how much each key may send, and how fast
log         which records are committed together, what is retried, what bounds a restart
life        the states of the daemon and the transitions between them
feed        numbers, messages, beats and subscriptions; which subscriber is too slow
heads       the last record on each topic
sync        the pulls of clients, and which one is served next
rights      what the owner of a key may do
revision    which kept batches are matched again, and when
jobs        the states of jobs
watchdog    which stage makes no progress
"""
