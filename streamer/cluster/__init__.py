"""Run work of the commands and of the daemon on a Ray cluster of several machines.

    connecting      start Ray on this machine, or join a running cluster
    shared_objects  objects with arrays, shared by all workers of a node without copies
    cluster_tasks   tasks of seconds; results in order, even if workers fail
    *_tasks         the tasks of each command
    worker_team     the workers of a daemon (match_worker); shard_starts: how they start

Nothing here is imported unless a cluster is requested. Only ``connecting`` and, on a worker,
``match_worker`` import ray.
"""
