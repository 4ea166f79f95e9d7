"""What a producer sends and when, against answers made up here."""

from __future__ import annotations

import pytest

from streamer.client.client_errors import (
    DaemonError,
    DaemonSilentError,
    LostBatchesError,
    RefusedError,
    StalledError,
)
from streamer.client.core.producer import ASK_SECONDS, Batch, ProducerCore
from streamer.protocol.wire import WireError


class Talk:
    """A producer in epoch 1, and a daemon whose answers have these fields if not others."""

    def __init__(self, **answer):
        self.core = ProducerCore("ipc://x", "p", 1, 5.0)
        self.now = 0.0
        self.answer = {"stream": "s", "session": 1, "state": "running", "credit": 1000}
        self.answer |= {"received": 0, "durable": 0, "matched": 0, "max_batch_bytes": 400} | answer
        self.core.owes_answer(self.now)
        assert self.core.must_ask(self.now)
        self.send(self.core.hello())

    @classmethod
    def sending(cls, *sizes):
        """One that is welcome and has sent a batch of each size."""
        talk = cls()
        talk.hear("welcome")
        talk.add(*sizes)
        talk.sent()
        return talk

    def send(self, message):
        self.core.went_out(message, self.now)
        return message.header

    def hear(self, kind, **fields):
        if kind != "refused":
            self.answer |= fields
        self.core.hear({"type": kind, "epoch": self.core.epoch} | self.answer | fields, self.now)

    def add(self, *sizes):
        for size in sizes:
            number = self.core.account.total + 1
            self.core.add(Batch([b"x"], size, 0, 10, f"r{number}", mark=b"%d" % number))

    def sent(self):
        """The sequences of the batches that go out now."""
        numbers = []
        while (message := self.core.batch()) is not None:
            numbers.append(self.send(message)["seq"])
        return numbers


def test_nothing_goes_out_before_the_welcome():
    talk = Talk()
    talk.add(10)
    assert talk.sent() == []
    talk.hear("ack")
    assert talk.sent() == []
    talk.hear("welcome")
    assert talk.sent() == [1]


def test_batches_go_out_as_credit_allows_and_never_beyond():
    talk = Talk(credit=100)
    talk.hear("welcome")
    talk.add(60, 40, 10, 90, 120)
    assert talk.sent() == [1, 2]
    talk.hear("ack", received=1, durable=0)
    assert talk.sent() == [3]
    talk.hear("ack", received=3, durable=1, credit=50)
    assert talk.sent() == []
    talk.hear("ack", received=3, durable=3, credit=100)
    assert talk.sent() == [4]
    assert [b.size for b in talk.core.account.kept] == [90, 120]


def test_what_it_needs_is_said_once_and_again_after_silence():
    talk = Talk(credit=100)
    talk.hear("welcome")
    talk.add(120, 130)
    assert talk.sent() == []
    assert talk.core.must_ask(talk.now)
    assert talk.send(talk.core.hello())["need"] == 120
    talk.hear("welcome", credit=110)
    assert not talk.core.must_ask(talk.now)
    talk.now += ASK_SECONDS + 0.1
    # the daemon may have been restarted, and waits for a message
    assert talk.core.must_ask(talk.now)
    assert talk.send(talk.core.hello())["need"] == 120
    talk.hear("ack", credit=120)
    assert talk.sent() == [1]
    assert not talk.core.must_ask(talk.now)
    talk.hear("ack", received=1, durable=1)
    assert talk.core.must_ask(talk.now)
    assert talk.send(talk.core.hello())["need"] == 130


def test_a_refusal_for_want_of_credit_is_followed_by_what_is_needed():
    talk = Talk()
    talk.hear("welcome")
    talk.add(10, 20)
    assert talk.sent() == [1, 2]
    for reason in ("credit", "full"):
        talk.hear("refused", seq=1, reason=reason, credit=0)
        assert talk.sent() == []
        assert talk.core.must_ask(talk.now)
        assert talk.send(talk.core.hello())["need"] == 10
        talk.hear("ack", credit=100)
        assert talk.sent() == [1, 2]


def test_a_message_that_stays_is_not_counted():
    talk = Talk()
    talk.hear("welcome")
    talk.add(10)
    talk.core.stayed(talk.core.batch())
    assert talk.core.account.sent == 0
    greetings = talk.core.greetings
    talk.core.stayed(talk.core.hello())
    assert talk.core.greetings == greetings
    assert talk.sent() == [1]
    assert talk.core.account.sent == 10


def test_silence_and_no_progress():
    talk = Talk()
    with pytest.raises(DaemonSilentError):
        talk.core.check(5.1, None, "its answer")
    with pytest.raises(StalledError, match="waited 2 s for credit"):
        talk.core.check(2.1, 2.0, "credit")
    talk.core.check(2.0, 2.0, "credit")
    talk.hear("welcome", state="draining", credit=0)
    talk.core.check(0, None, "nothing")
    talk.add(1)
    with pytest.raises(RefusedError, match="accepts no more batches"):
        talk.core.check(0, None, "credit")


# ---- restarts ------------------------------------------------------------------------------------


def restarted(accepted, recorded, published, **welcome):
    """A producer with 5 batches of 10 reads sent, and another start of the daemon."""
    talk = Talk.sending(1, 1, 1, 1, 1)
    talk.hear("ack", received=accepted, durable=recorded, matched=published)
    # what it sends of its own accord is of another session
    refused = {"type": "refused", "seq": 5, "reason": "epoch", "epoch": 1}
    talk.core.hear(refused | {"session": 2, "stream": "s"}, 0)
    assert not talk.core.synced
    assert talk.core.must_ask(talk.now)
    talk.send(talk.core.hello())
    talk.answer |= {"session": 2}
    talk.hear("welcome", **welcome)
    return talk


def test_refusals_from_a_new_start_ask_once():
    talk = Talk.sending(1, 1)
    for number in (1, 2):
        talk.hear("refused", seq=number, reason="epoch", session=2)
        assert talk.core.must_ask(talk.now) == (number == 1)
        if number == 1:
            talk.send(talk.core.hello())


def test_what_is_of_another_epoch_says_nothing():
    talk = Talk.sending(1)
    talk.hear("ack", epoch=0, received=1, durable=1)
    talk.core.hear(talk.answer | {"type": "refused", "epoch": 0, "seq": 1, "reason": "base"}, 0)
    assert (talk.core.account.durable, talk.core.epoch) == (0, 1)


def test_a_daemon_that_takes_no_more_is_not_asked_for_credit():
    talk = Talk(credit=0, state="draining")
    talk.hear("welcome")
    talk.add(1)
    assert not talk.core.must_ask(talk.now)


def test_a_restart_with_the_journal_loses_nothing_and_begins_no_epoch():
    talk = restarted(5, 2, 1, received=3, durable=3, matched=3)
    assert talk.core.epoch == 1
    assert (talk.core.received, talk.core.account.durable) == (3, 3)
    assert talk.sent() == [4, 5]
    talk.hear("ack", received=5, durable=5, matched=5)
    account = talk.core.account
    assert (account.acknowledged.reads, account.matched.reads, account.sent) == (50, 50, 50)


def test_another_journal_has_lost_what_was_acknowledged_and_not_matched():
    with pytest.raises(LostBatchesError, match="2 accepted batches"):
        restarted(5, 3, 1, stream="other", received=0, durable=0, matched=0)


def test_another_journal_gets_the_rest_in_a_new_epoch():
    talk = restarted(5, 3, 3, stream="other", received=0, durable=0, matched=0)
    assert (talk.core.epoch, talk.core.synced) == (2, False)
    assert talk.core.must_ask(talk.now)
    assert talk.send(talk.core.hello())["epoch"] == 2
    talk.hear("welcome")
    assert talk.sent() == [1, 2]
    assert talk.core.account.acknowledged.reads == 30


def test_a_journal_that_has_less_than_what_was_durable_has_lost_it():
    """Whether it was matched or not; so has another journal."""
    for matched in (1, 3, 4):
        for more in ({}, {"stream": "other", "durability": "os"}):
            with pytest.raises(LostBatchesError, match="2 batches that were durable are not in"):
                restarted(5, 4, matched, received=2, durable=2, matched=2, **more)
    # a copy that has all
    talk = restarted(5, 4, 4, received=4, durable=4, matched=4, stream="other", durability="os")
    assert talk.core.epoch == 2


# ---- refusals ------------------------------------------------------------------------------------


def test_a_refused_batch_is_dropped_and_the_others_go_out_in_a_new_epoch():
    talk = Talk()
    talk.hear("welcome", mark=b"before")
    assert talk.core.mark == b"before"
    talk.add(1, 1, 1)
    talk.sent()
    with pytest.raises(RefusedError):
        talk.hear("refused", seq=2, reason="base", received=1, durable=1)
    assert (talk.core.epoch, talk.core.account.acknowledged.reads) == (2, 10)
    talk.send(talk.core.hello())
    talk.hear("welcome", received=0, durable=0)
    message = talk.core.batch()
    assert (message.header["seq"], message.header["mark"]) == (1, b"3")


def test_after_a_refused_batch_those_before_it_are_waited_for():
    talk = Talk()
    talk.hear("welcome", earlier=0)
    talk.add(1, 1, 1)
    talk.sent()
    with pytest.raises(RefusedError):
        talk.hear("refused", seq=3, reason="base", received=2, durable=2)
    talk.send(talk.core.hello())
    for earlier in (2, 1):
        talk.hear("welcome", received=0, durable=0, earlier=earlier)
        assert not talk.core.all_matched
        assert talk.core.account.matched.reads == 0
    talk.now = 3.0
    talk.hear("ack", earlier=0)
    assert talk.core.all_matched
    assert talk.core.account.matched.reads == 20
    talk.core.check(5.0, 2.5, "progress was made")
    # a name that another run had: its batches are no concern of this one
    talk.hear("ack", earlier=7)
    assert talk.core.all_matched


def test_a_daemon_before_the_count_of_earlier_batches():
    """It is known that they are matched once a batch of the new epoch is."""
    talk = Talk.sending(1, 1, 1)
    with pytest.raises(RefusedError):
        talk.hear("refused", seq=2, reason="base", received=1, durable=1)
    talk.send(talk.core.hello())
    talk.hear("welcome", received=0, durable=0)
    assert talk.core.all_matched
    assert talk.core.account.matched.reads == 0
    talk.sent()
    talk.hear("ack", received=1, durable=1)
    assert not talk.core.all_matched
    talk.hear("ack", matched=1)
    assert talk.core.account.matched.reads == 20


def test_a_conflict_counts_nothing_as_acknowledged():
    talk = Talk.sending(1)
    with pytest.raises(RefusedError):
        talk.hear("refused", seq=1, reason="conflict", received=3, durable=3)
    assert talk.core.account.acknowledged.reads == 0


def test_another_run_that_has_taken_over_ends_this_one():
    talk = Talk.sending(1)
    for _ in range(2):
        with pytest.raises(RefusedError):
            talk.hear("refused", seq=1, reason="stale-epoch")
    assert (talk.core.epoch, len(talk.core.account.kept)) == (1, 1)


def test_a_gap_and_an_unknown_epoch_are_asked_about():
    for reason in ("gap", "epoch"):
        talk = Talk.sending(1, 1)
        talk.hear("refused", seq=2, reason=reason)
        assert not talk.core.synced
        talk.send(talk.core.hello())
        # more of these, from before the hello, change nothing
        talk.hear("refused", seq=2, reason=reason)
        assert not talk.core.must_ask(talk.now)
        talk.hear("welcome", received=1, durable=1)
        assert talk.sent() == [2]


def test_damaged_messages_are_sent_again_but_not_for_ever():
    talk = Talk()
    talk.hear("welcome")
    talk.add(1)
    for _ in range(3):
        talk.sent()
        # what such a message says of itself may be wrong, too
        talk.hear("refused", seq=1, reason="checksum")
        assert not talk.core.synced
        talk.send(talk.core.hello())
        talk.hear("welcome")
    with pytest.raises(RefusedError):
        talk.hear("refused", reason="checksum")
    # those before some progress do not count
    talk.hear("ack", received=1, durable=1)
    talk.hear("refused", reason="checksum")


def test_another_producer_of_the_name_in_the_epoch_is_noticed():
    talk = Talk()
    with pytest.raises(DaemonError, match="another producer uses the name 'p'"):
        talk.hear("welcome", received=1, durable=1)


def test_a_name_that_the_daemon_has_forgotten_goes_on_in_a_new_epoch():
    """Nothing is lost with it: what was durable was published, too."""
    talk = Talk()
    talk.hear("welcome")
    talk.add(10, 20)
    assert talk.sent() == [1, 2]
    talk.hear("ack", received=2, durable=2, matched=2)
    talk.add(30)
    assert talk.sent() == [3]
    talk.hear("refused", seq=3, reason="epoch", received=0, durable=0, matched=0)
    assert talk.core.must_ask(talk.now)
    talk.send(talk.core.hello())
    talk.hear("welcome", received=0, durable=0, matched=0)
    assert talk.core.epoch == 2
    talk.send(talk.core.hello())
    talk.hear("welcome")
    assert talk.sent() == [1]
    assert [held.size for held in talk.core.account.kept] == [30]


def test_an_answer_with_more_durable_than_received_is_none():
    talk = Talk()
    talk.add(10, 10, 10)
    with pytest.raises(WireError, match="batches up to 15 are durable, up to 2 received"):
        talk.hear("welcome", received=2, durable=15)
    assert talk.core.account.durable == 0


@pytest.mark.parametrize("field", ["reason", "message", "seq"])
def test_a_refusal_that_cannot_be_written_out_is_told(field):
    deep = []
    for _ in range(1100):
        deep = [deep]
    talk = Talk()
    with pytest.raises(RefusedError, match="of type list"):
        talk.hear("refused", **({"reason": "stale-epoch", "message": "no"} | {field: deep}))


@pytest.mark.parametrize("kind", ["welcome", "ack", "refused"])
def test_more_received_than_sent_is_of_another_producer(kind):
    talk = Talk()
    talk.add(10, 10)
    talk.hear("welcome")
    assert talk.sent() == [1, 2]
    with pytest.raises(DaemonError, match="another producer uses the name"):
        talk.hear(kind, received=5, reason="gap", message="no", seq=6)
    talk.hear("welcome", received=2)
    assert talk.core.received == 2
