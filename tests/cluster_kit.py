"""Nodes of Ray on this host, and faults of their workers."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import random
import shutil
import signal
import tempfile
import threading
from pathlib import Path

import pytest

from streamer.cluster import connecting

TOKEN = "0123456789abcdef" * 4

needs_ray = pytest.mark.skipif(
    importlib.util.find_spec("ray") is None,
    reason="Ray is not installed: pip install '.[cluster]' in a clone",
)


class Nodes:
    """A cluster of nodes with a CPU each; this process is connected to it."""

    def __init__(self, cluster):
        self.cluster = cluster
        self.address = cluster.address
        self._removed = set()

    def add(self):
        """Add a node; its signal handlers can only be set in the main thread."""
        self.cluster._shutdown_at_exit = threading.current_thread() is threading.main_thread()
        return self.cluster.add_node(num_cpus=1, include_dashboard=False)

    def remove(self, node):
        """End a node and its workers at once."""
        self._removed.add(node.node_id)
        self.cluster.remove_node(node, allow_graceful=False)

    def ghosts(self):
        """Whether Ray has not yet noticed the removal of a node, which takes 15 seconds.

        Until then it sends tasks there. Removing more nodes would leave all tasks waiting for
        ghosts.
        """
        import ray

        return any(node["Alive"] and node["NodeID"] in self._removed for node in ray.nodes())

    def workers(self, doing="perform"):
        """The PIDs of workers with this task on the nodes that exist."""
        raylets = {
            node.all_processes["raylet"][0].process.pid
            for node in self.cluster.list_all_nodes()
            if node.all_processes.get("raylet")
        }
        found = []
        for folder in Path("/proc").iterdir():
            if not folder.name.isdecimal():
                continue
            with contextlib.suppress(OSError, IndexError, ValueError):
                title = (folder / "cmdline").read_bytes().decode(errors="replace")
                parent = int((folder / "stat").read_text().rpartition(") ")[2].split()[1])
                if parent in raylets and title.startswith("ray::") and doing in title:
                    found.append(int(folder.name))
        return sorted(found)

    def kill(self, pid, number=signal.SIGKILL):
        """Send a signal to a worker, if it is still there."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


class Trouble(threading.Thread):
    """Until stopped, kills workers and removes and adds nodes, by a seed.

    most: the most kills; on a busy machine a worker may take longer to start than it lives.
    """

    def __init__(self, nodes, seed, pause, *, with_nodes, doing="perform", most=4):
        super().__init__(daemon=True)
        self.nodes = nodes
        self.doing = doing
        self.rng = random.Random(seed)
        self.pause = pause
        self.most = most
        self.with_nodes = with_nodes
        self.over = threading.Event()
        self.kills = self.moves = 0
        self.error = None

    def run(self):
        try:
            self._trouble()
        except Exception as error:
            self.error = error

    def _trouble(self):
        extra = None
        # the first kill comes at once, as a job may be short
        while not self.nodes.workers(self.doing) and not self.over.wait(0.02):
            pass
        while not self.over.wait(self.rng.uniform(0.5, 1.5) * self.pause * bool(self.kills)):
            if self.with_nodes and self.rng.random() < 0.2 and not self.nodes.ghosts():
                self.moves += 1
                if extra is None:
                    extra = self.nodes.add()
                else:
                    self.nodes.remove(extra)
                    extra = None
                continue
            workers = self.nodes.workers(self.doing)
            if workers and self.kills < self.most:
                self.nodes.kill(self.rng.choice(workers))
                self.kills += 1
        if extra is not None:
            self.nodes.remove(extra)

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self.join()
        if self.error is not None:
            raise self.error


@contextlib.contextmanager
def ray_nodes():
    """Two nodes with a CPU each, and this process connected to the first."""
    before = dict(os.environ)
    # paths of sockets must be short
    folder = tempfile.mkdtemp(prefix="ray-", dir="/tmp")
    # Ray reads these when it is imported; it stores the cluster's address below RAY_TMPDIR
    os.environ |= connecting.SETTINGS | {"RAY_AUTH_TOKEN": TOKEN, connecting.LOOPBACK: "0"}
    os.environ["RAY_TMPDIR"] = folder
    import ray
    from ray.cluster_utils import Cluster

    cluster = Cluster(
        initialize_head=True,
        head_node_args={"num_cpus": 1, "include_dashboard": False, "temp_dir": f"{folder}/ray"},
    )
    try:
        cluster.add_node(num_cpus=1, include_dashboard=False)
        connecting.silence()
        ray.init(address=cluster.address, log_to_driver=False, logging_level="critical")
        yield Nodes(cluster)
    finally:
        ray.shutdown()
        cluster.shutdown()
        shutil.rmtree(folder, ignore_errors=True)
        os.environ.clear()
        os.environ |= before
