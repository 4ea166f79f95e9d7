"""More than one machine: work of the commands and of the daemon on a Ray cluster.

    connecting      a Ray on this machine, or one that runs already
    shared_objects  objects with arrays, which all workers of a node read in one place
    cluster_tasks   tasks of seconds; their results in order, whatever happens to workers
    *_tasks         the tasks of each command
    worker_team     the workers of a daemon (match_worker); shard_starts: how they start

Nothing here is imported unless a cluster is asked for. Only ``connecting`` and, on a worker,
``match_worker`` import ray.
"""
