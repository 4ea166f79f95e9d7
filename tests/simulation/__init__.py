"""A simulation of the whole service from one seed: the cores unchanged, everything else a model.

clock            the next event, in simulated time; processes, which may end at any step
network          sockets like those of ZeroMQ, whose connections may break
feed_network     the feed's sockets, which lose messages
machine_disk     synced and unsynced pages, a full disk, a failing sync, flipped bits
model_journal    the store of records on that disk, step by step; model_index is its index
toy_matcher      a cheap matcher whose results depend on all earlier batches
daemon_threads   ingest and feed of a daemon around their cores; also log_thread, engine_thread
sync_host        the process that replays the journal
daemon_host      one start of the daemon, from opening the journal to its end
producer_host    sends batches until they are durable, even after it was killed
subscriber_host  follows the feed, with and without a way to heal gaps
storm_plan       the participants of a run, its limits and faults; storm causes the faults
promises         what must hold, checked from what clients saw and what the journal holds
single_pass      the expected content of every record
mistakes         daemons with bugs that the simulation must find
world            a run: a storm, then calm, in which everything must complete
"""
