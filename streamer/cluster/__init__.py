"""Run work of the commands and of the daemon on a Ray cluster of several machines.

    connecting      start Ray on this machine, or join a running cluster; objects without copies
    cluster_tasks   tasks of seconds; results in order, even if workers fail
    *_tasks         the tasks of each command
    cluster_matcher the matcher of a daemon
    worker_team     its workers (match_worker), and when they start

Nothing here is imported unless a cluster is requested. Only ``connecting`` and, on a worker,
``match_worker`` import ray.
"""
