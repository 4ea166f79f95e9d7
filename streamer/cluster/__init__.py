"""More than one machine: work of the commands and of the daemon on a Ray cluster.

    connecting      a Ray on this machine, or one that runs already
    shared_objects  objects with arrays, which all workers of a node read in one place
    cluster_tasks   tasks of seconds; their results in order, whatever happens to workers
    *_tasks         the tasks of each command

Nothing here is imported unless a cluster is asked for, and only ``connecting`` imports ray.
"""
