"""``Producer``: sends batches of reads, keeps each until it is durable, and obeys credit."""

from __future__ import annotations

from contextlib import closing

from streamer.client.parts import EncodedBatch, Mark, Reads
from streamer.client.producer_steps import ProducerSteps, Steps
from streamer.sequences.read_batch import ReadBatch


class Producer(ProducerSteps):
    """Sends batches of reads to the daemon at ``endpoint``, in order, each with one effect.

    name: of this producer, the same in every run that continues another; by default it is new.
    answer_seconds: how long the daemon may be silent when it owes an answer.

    Whatever ended a call early, ``reads_sent``, ``reads_acknowledged``, ``reads_matched`` and
    ``last_acknowledged`` tell how far it came, and ``state`` is the last known one of the daemon.
    A batch may have gone out without an answer so far: ``settle`` waits for that. As long as no
    batch was refused, the reads acknowledged are the first of those handed over.

    >>> from streamer.client import Producer
    >>> with Producer("tcp://127.0.0.1:5701", name="bench7") as producer:
    ...     producer.connect()
    ...     producer.send([("read1", "GGGCGGCGACCTCGCGGGTTTTCGCTATTTAT")], mark=b"1 read")
    ...     producer.flush(matched=True, timeout=60)
    ...     print(producer.state, producer.reads_acknowledged, producer.last_acknowledged)
    running 1 read1

    After an interrupt ``settle`` finds out what has arrived, and a later run of the same name finds
    its mark:

    >>> producer = Producer("tcp://127.0.0.1:5701", name="bench7")
    >>> producer.connect()
    >>> producer.mark
    b'1 read'
    >>> producer.heed()  # takes answers without waiting
    >>> producer.settle(timeout=60)
    >>> producer.close()
    """

    def connect(self, *, timeout: float | None = None) -> None:
        """Return once the daemon has answered; ``send`` and ``flush`` do so by themselves."""
        self._run(self._connecting(timeout))

    def send(
        self,
        reads: EncodedBatch | ReadBatch | Reads,
        *,
        timeout: float | None = None,
        mark: bytes | Mark = b"",
        growing: bool = False,
    ) -> None:
        """Send a batch: returns when it is on its way, which requires credit.

        reads: a ReadBatch, an EncodedBatch, or (name, letters) pairs; a batch larger than the
        daemon takes is split, and the reads before one that is too large by itself are sent.
        timeout: seconds without any progress after which StalledError is raised and the batch is
        not sent. RefusedError is about this or an earlier batch; the others go on.

        mark: at most 256 bytes that are recorded with the batch; a later run of this name finds
        those of the last durable batch in ``mark``. A function gives them for the first so many
        reads of the batch: if it is split, each part has its own. With bytes only the last part
        has them, and the others repeat those before.

        growing: the reads are still being sequenced. They are decided on, on the topic
        ``decision``, and nothing else: send them again as they grow, and whole without this.
        """
        self._run(self._sending(reads, timeout, mark, growing))

    def flush(self, *, timeout: float | None = None, matched: bool = False) -> None:
        """Return once everything sent is durable, and with ``matched`` matched and published.

        timeout: seconds without any progress after which StalledError is raised.
        """
        self._run(self._flushing(timeout, matched))

    def settle(self, *, timeout: float | None = None) -> None:
        """Send nothing more, and return once the daemon has answered for all that has gone out.

        From then on ``reads_acknowledged`` is final, unless batches wait for the daemon's disk. For
        use after an interrupt or an error; ``send`` and ``flush`` go on with the batches that
        remain.
        """
        self._run(self._settling(timeout))

    def close(self) -> None:
        """Close the connection. What is not acknowledged may be lost: ``flush`` first."""
        super().close()

    def _finish(self) -> None:
        self.flush()

    def _run(self, steps: Steps) -> None:
        with closing(steps):
            for seconds in steps:
                self._socket.poll(int(seconds * 1000), self._awaited())
