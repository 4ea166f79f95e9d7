"""The state machines of the daemon, without I/O.

What has happened goes in, with the time as an argument; messages and batches come out. Nothing here
imports sockets, threads, clocks or the journal (a test says so), so that a simulator can run all of
it unchanged.

ingest      messages of producers: accepted, repeated or refused, acknowledged
producers   what is known of each producer; credit
log         what is committed together, what is tried again, what bounds a restart
life        the states of the daemon, and what leads from one to the next
feed        numbers, messages, beats and subscriptions
heads       the last record on each topic
sync        who pulls what, whose turn it is
backlog     which subscriber is too slow
rights      what the owner of a key may do
allowances  how much of it, and how fast
"""
