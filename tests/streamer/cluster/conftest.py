"""Two nodes of Ray on this host, which all tests of a cluster share."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import signal
import tempfile
from pathlib import Path

import pytest

from streamer.cluster import connecting

TOKEN = "0123456789abcdef" * 4


class Nodes:
    """A cluster of nodes with a CPU each; this process is connected to it."""

    def __init__(self, cluster):
        self.cluster = cluster
        self.address = cluster.address

    def add(self):
        """Another node."""
        return self.cluster.add_node(num_cpus=1, include_dashboard=False)

    def remove(self, node):
        """End a node and its workers at once."""
        self.cluster.remove_node(node, allow_graceful=False)

    def workers(self, doing="perform"):
        """The process ids of workers, by what they do, of the nodes that are there."""
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


@pytest.fixture(scope="session")
def nodes():
    """Two nodes, and this process connected to the first."""
    # it reads its settings when it is imported
    if importlib.util.find_spec("ray") is None:
        pytest.skip("Ray is not installed: pip install 'kmer-streamer[cluster]'")
    before = dict(os.environ)
    os.environ |= connecting.SETTINGS | {"RAY_AUTH_TOKEN": TOKEN, connecting.LOOPBACK: "0"}
    # names of sockets are short
    folder = tempfile.mkdtemp(prefix="ray-", dir="/tmp")
    import ray
    from ray.cluster_utils import Cluster

    cluster = Cluster(
        initialize_head=True,
        head_node_args={"num_cpus": 1, "include_dashboard": False, "temp_dir": folder},
    )
    try:
        cluster.add_node(num_cpus=1, include_dashboard=False)
        ray.init(address=cluster.address, log_to_driver=False, logging_level="critical")
        yield Nodes(cluster)
    finally:
        ray.shutdown()
        cluster.shutdown()
        shutil.rmtree(folder, ignore_errors=True)
        os.environ.clear()
        os.environ |= before
