"""``streamer send -``: reads of a slow pipe go out although no batch is full."""

from __future__ import annotations

import os
import subprocess
import sys
import zlib

import pytest

from tests.data_files import ROOT
from tests.forked import Forked
from tests.streamer.cli.test_send_watch import collecting
from tests.streamer.watching.kit import record
from tests.streamer.watching.test_watcher import bgzf_block
from tests.waiting import DEADLINE, until

pytestmark = pytest.mark.whole


def fastq(names):
    for name in names:
        yield record(name).encode()


def gzipped(names):
    packer = zlib.compressobj(wbits=16 + zlib.MAX_WBITS)
    for text in fastq(names):
        yield packer.compress(text) + packer.flush(zlib.Z_SYNC_FLUSH)
    yield packer.flush()


def bam(names):
    header = b"BAM\1" + bytes(8)
    for name in names:
        body = b"".join(
            number.to_bytes(size, "little", signed=True)
            for number, size in (
                (-1, 4), (-1, 4), (len(name) + 1, 1), (0, 1), (0, 2), (0, 2), (4, 2), (4, 4),
                (-1, 4), (-1, 4), (0, 4),
            )
        )  # fmt: skip
        body += name.encode() + b"\0" + b"\x12\x48" + b"\x28" * 4
        yield bgzf_block(header + len(body).to_bytes(4, "little") + body)
        header = b""
    yield bytes.fromhex("1f8b08040000000000ff0600424302001b0003000000000000000000")


@pytest.mark.parametrize(("form", "threads"), [(gzipped, "4"), (bam, "1")])
def test_each_read_is_sent_while_the_pipe_stays_open(path, form, threads):
    names = [f"r{i}" for i in range(4)]
    with collecting(path) as (daemon, sent):
        arguments = ["send", "-", "--to", daemon.endpoints["ingest"], "-q"]
        arguments += ["--threads", threads]
        with Forked(
            [sys.executable, "-m", "streamer", *arguments],
            stdin=subprocess.PIPE,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
        ) as child:
            try:
                assert child.stdin is not None
                for count, data in enumerate(form(names), 1):
                    child.stdin.write(data)
                    child.stdin.flush()
                    come = min(count, len(names))
                    until(lambda come=come: len(sent) >= come or child.poll(), f"read {count}")
                    assert sent == names[:come]
                child.stdin.close()
                assert child.wait(DEADLINE) == 0
            finally:
                child.kill()
