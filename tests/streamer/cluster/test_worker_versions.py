"""Workers refuse tasks of a command of another version, in one line. No Ray is needed."""

from __future__ import annotations

import pytest

from streamer import __version__
from streamer.cluster.batch_tasks import run_tile
from streamer.cluster.cluster_tasks import perform
from streamer.cluster.connecting import packed, unpacked
from streamer.cluster.match_worker import MatchWorker
from streamer.dictionary.targets import Dictionary
from streamer.errors import StreamerError

FAULT = rf"^a worker has version {__version__} of kmer-streamer, "


def test_a_tile_of_another_version_is_refused():
    with pytest.raises(StreamerError, match=FAULT + r"this command 0\.0$"):
        run_tile("0.0", packed(None), (0, 1, 0, 1, False), None, None, False)


def test_a_task_of_another_version_is_refused():
    done = perform("0.0", "key", packed(""), packed(""))
    assert unpacked(done).lines == [
        f"a worker has version {__version__} of kmer-streamer, this command 0.0"
    ]


def test_a_daemon_of_another_version_is_refused():
    empty = Dictionary.empty(11, "canonical")
    with pytest.raises(StreamerError, match=FAULT + r"the daemon 0\.0$"):
        MatchWorker().load("0.0", [packed(None)], [empty.codes], 0)
