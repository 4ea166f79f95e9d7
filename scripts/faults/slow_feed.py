"""Memory of the daemon while subscribers read nothing, and what one that reads notices: a table.

Each row is a daemon of its own under full load of one producer. Its subscribers are stopped
(SIGSTOP) in four groups, one after the other; one more keeps reading, in a process of its own.
With ``--repeat`` one client repeats a subscription as fast as it can, without and with a key.
"""

from __future__ import annotations

import argparse
import ast
import random
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from subprocess import Popen

from streamer.client import Control, Producer
from streamer.daemon.core.rights import KeyLimits, Rights
from tests.daemon_kit import GENOME, process, random_dna, settings
from tests.faults.soak_truth import memory
from tests.keys_kit import key_folder
from tests.waiting import until

MIB = 1 << 20
# bases a second, less than half of what two idle cores carry
RATE = 10_000_000

STOPPED = """
import sys, zmq
endpoint, count = sys.argv[1], int(sys.argv[2])
context = zmq.Context()
context.max_sockets = 4096
sockets = []
for _ in range(count):
    socket = context.socket(zmq.SUB)
    socket.connect(endpoint)
    for topic in ("match.", "mismatch.", "read.", "beat."):
        socket.subscribe(topic)
    sockets.append(socket)
for socket in sockets:
    socket.recv_multipart()
print("ready", flush=True)
while True:
    for socket in sockets:
        while socket.poll(0):
            socket.recv_multipart()
    sockets[0].poll(10)
"""

REPEATING = """
import sys, time, zmq
endpoint, seconds, keys = sys.argv[1], float(sys.argv[2]), sys.argv[3:]
context, sent, ends = zmq.Context(), 0, time.monotonic() + float(seconds)
socket = context.socket(zmq.XSUB)
socket.sndhwm, socket.linger = 0, 0
monitor, ended = socket.get_monitor_socket(zmq.EVENT_DISCONNECTED), 0
if keys:
    socket.curve_publickey, socket.curve_secretkey, socket.curve_serverkey = map(str.encode, keys)
socket.connect(endpoint)
while time.monotonic() < ends:
    socket.send(b"\\x01word.")
    sent += 1
while monitor.poll(0):
    ended += bool(monitor.recv_multipart())
print(sent, ended, flush=True)
"""

READING = """
import sys, time, zmq, msgpack
context = zmq.Context()
socket = context.socket(zmq.SUB)
socket.rcvhwm = 0
socket.connect(sys.argv[1])
for topic in ("match.", "read.", "status."):
    socket.subscribe(topic)
heads, delays, gaps, size = {}, [], 0, 0
print("ready", flush=True)
while True:
    frames = socket.recv_multipart()
    header = msgpack.unpackb(frames[1])
    size += sum(map(len, frames))
    topic = header["topic"]
    if topic == "status." and header["status"]["state"] == "ended":
        break
    if topic in ("match.", "read."):
        gaps += heads.setdefault(topic, header["prev"]) != header["prev"]
        heads[topic] = header["at"]
        delays.append((time.time_ns(), header["time"]))
print({"gaps": gaps, "bytes": size, "delays": delays})
"""


@contextmanager
def started(folder: Path, given: dict[str, object]) -> Iterator[Popen[str]]:
    """A daemon in a folder, with these settings."""
    (folder / "genome.fa").write_text(f">g\n{GENOME}\n")
    path = settings(folder, f'k = 15\nsources = ["{folder}/genome.fa"]')
    options = [word for pair in given.items() for word in ("--set", "{}={}".format(*pair))]
    with (
        open(folder / "log", "w") as log,
        process(["run", "--config", path, *options], stderr=log.fileno()) as daemon,
    ):
        until(lambda: '"ready"' in (folder / "log").read_text(), "the daemon")
        yield daemon


def measured(transport: str, subscribers: int, limit: int, reads: int, seconds: float) -> dict:
    """The figures of one daemon; reads: of 5,000 bases in each batch."""
    rng = random.Random(subscribers)
    pieces = [GENOME[i : i + 15] + random_dna(rng, 5) for i in range(0, 3900, 30)]
    batch = [(f"r{i}", "".join(rng.choices(pieces, k=250))) for i in range(reads)]
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        given = {"feed.buffer_bytes": limit, "ingest.memory_bytes": 8 * MIB}
        given["ingest.max_batch_bytes"] = 4 * MIB
        if transport == "tcp":
            given["feed.endpoint"] = "tcp://127.0.0.1:*"
        daemon = stack.enter_context(started(folder, given))
        control = stack.enter_context(Control(f"ipc://{folder}/control"))
        endpoint = control.status()["endpoints"]["feed"]
        reading = stack.enter_context(process([endpoint], READING))
        assert reading.stdout.readline() == "ready\n"
        shares = [len(range(i, subscribers, 4)) for i in range(4)]
        stopped = [
            stack.enter_context(process([endpoint, str(count)], STOPPED))
            for count in shares
            if count
        ]
        for one in stopped:
            assert one.stdout.readline() == "ready\n"
        producer = stack.enter_context(Producer(f"ipc://{folder}/ingest"))
        enough = threading.Event()
        seconds_a_batch = reads * 5_000 / RATE

        def send() -> None:
            while not enough.wait(seconds_a_batch):
                producer.send(batch, timeout=60)
            producer.flush(timeout=60)

        sender = threading.Thread(target=send)
        sender.start()
        begun = time.time_ns()
        time.sleep(seconds)
        before, halted = memory(daemon.pid), time.time_ns()
        most = waiting = above = 0
        ends = time.monotonic() + 4 * seconds
        steps = [ends - (4 - i) * seconds / 2 - 2 * seconds for i in range(len(stopped))]
        remaining = list(stopped)
        while time.monotonic() < ends:
            if remaining and time.monotonic() >= steps[len(stopped) - len(remaining)]:
                remaining.pop(0).send_signal(signal.SIGSTOP)
            most = max(most, memory(daemon.pid))
            now = control.status()["feed"]["bytes"]
            waiting = max(waiting, now)
            above += now > limit
            time.sleep(0.01)
        slow = control.status()["feed"]["slow"]
        enough.set()
        sender.join()
        control.drain()
        seen = ast.literal_eval(reading.communicate(timeout=120)[0])
    calm = [come - sent for come, sent in seen["delays"] if begun + 5e8 < sent < halted]
    later = [come - sent for come, sent in seen["delays"] if sent >= halted]
    return {
        "transport": transport,
        "subscribers": subscribers,
        "limit_mb": limit / 1e6,
        "message_kb": seen["bytes"] / max(1, len(seen["delays"])) / 1e3,
        "published_mb_s": seen["bytes"] / (5 * seconds) / 1e6,
        "waiting_mb": waiting / 1e6,
        "grown_mb": most - before,
        "ended": slow,
        "gaps": seen["gaps"],
        "p99_before_ms": _p99(calm),
        "p99_ms": _p99(later),
    }


def repeated(seconds: float, *, keyed: bool) -> float:
    """The growth of a daemon, a client of which repeats a subscription, in MB."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        given, keys = {}, dict.fromkeys(("all", "few"))
        if keyed:
            few = KeyLimits(subscriptions=4)
            keys = key_folder(folder / "keys", Rights("few", watch=("word",), limits=few))
            given["security.keys"] = folder / "keys"
        daemon = stack.enter_context(started(folder, given))
        control = stack.enter_context(Control(f"ipc://{folder}/control", keys=keys["all"]))
        before = most = memory(daemon.pid)
        words = [f"ipc://{folder}/feed", str(seconds), *(keys["few"] or [])[1:]]
        client = stack.enter_context(process(words, REPEATING))
        while client.poll() is None:
            most = max(most, memory(daemon.pid))
            control.status()
            time.sleep(0.01)
        until(lambda: not control.status()["topics"], "the end of the subscription")
        sent, ended = map(int, client.stdout.read().split())
    grown = most - before
    print(f"keyed {keyed}, sent {sent:,}, ended {ended}, grown by {grown:.1f} MB", flush=True)
    return grown


def _p99(delays: list[int]) -> float:
    return sorted(delays)[int(len(delays) * 0.99)] / 1e6 if delays else float("nan")


def main() -> int:
    """Print a row for each combination; 1 if more waited than the limit, or a reader lost any."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=5, help="before, and a quarter of after")
    parser.add_argument("--subscribers", type=int, nargs="+", default=[1, 6, 40, 1000])
    parser.add_argument("--limit-mb", type=int, nargs="+", default=[8, 256])
    parser.add_argument("--reads", type=int, nargs="+", default=[1, 200])
    parser.add_argument("--repeat", type=float, default=0, help="seconds of one subscription")
    parser.add_argument("--transport", nargs="+", default=["ipc", "tcp"])
    asked = parser.parse_args()
    if asked.repeat:
        return int(max(repeated(asked.repeat, keyed=keyed) for keyed in (False, True)) > 50)
    failed = False
    names = None
    for transport in asked.transport:
        for limit in asked.limit_mb:
            for reads in asked.reads:
                for count in asked.subscribers:
                    row = measured(transport, count, limit * MIB, reads, asked.seconds)
                    if names is None:
                        names = list(row)
                        print(*names, sep="\t")
                    shown = (f"{v:.3g}" if isinstance(v, float) else str(v) for v in row.values())
                    print(*shown, sep="\t", flush=True)
                    failed |= row["waiting_mb"] > row["limit_mb"] or row["gaps"] > 0
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
