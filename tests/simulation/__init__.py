"""A simulation of the whole service from one seed: the cores unchanged, everything else a model.

clock            what happens next, in simulated time; processes, which may end at any step
network          sockets as ZeroMQ has them, whose connections end
feed_network     the feed's sockets, which lose messages
machine_disk     pages that are synced or not, a full disk, a sync that fails, flipped bits
model_journal    the store of records on that disk, step by step, and model_index, its index
toy_matcher      a cheap matcher whose results depend on all batches before
daemon_threads   ingest and feed of a daemon around their cores, log_thread and engine_thread
sync_host        the process that replays the journal
daemon_host      a start of the daemon: from opening the journal to its end
producer_host    what sends batches until they are durable, also after it was killed
subscriber_host  what follows the feed, with and without a way to ask again
storm_plan       who takes part in a run, its limits, its faults; storm makes them happen
promises         what must hold, from what clients have seen and what the journal holds
single_pass      what every record must be
mistakes         daemons that do what they must not
world            a run: a storm, then calm, in which everything must get done
"""
