"""Targets from some of the matches against sets of strings, of reads and of pairs."""

from __future__ import annotations

import random

import pytest

from streamer.matching.assigning import assigned, assigned_reads
from streamer.matching.matcher import StreamMatcher
from streamer.matching.reports import Assignment
from tests.matching_results import batch_of, dictionary_of
from tests.reference import targets as oracle
from tests.reference.exact import reverse_complement
from trie.index import text_index

LENGTHS = (0, 9, 20, 31, 33, 60, 90, 150, 400)


def records_of(rng: random.Random) -> list[tuple[str, str]]:
    """One with a copy that goes on in another way, repeats of short motifs, and a palindrome."""
    letters = "".join(rng.choices("ACGT", k=900))
    half = letters[200:260]
    text = letters + letters[100:160] + "A" * 90 + "CAG" * 40 + half + reverse_complement(half)
    return [("long", text + "N" + letters[:400]), ("short", letters[:25])]


def read_of(rng: random.Random, text: str) -> str:
    """A piece of either strand, with and without errors, or one that the text lacks."""
    length = rng.choice(LENGTHS)
    start = rng.randrange(len(text) - length)
    read = text[start : start + length]
    if rng.random() < 0.3:
        read = "".join(rng.choices("ACGT", k=length))
    if rng.random() < 0.5:
        read = reverse_complement(read)
    rate = rng.choice([0, 0.01, 0.05])
    return "".join(rng.choice("ACGTN") if rng.random() < rate else base for base in read)


@pytest.mark.whole
@pytest.mark.parametrize(
    ("k", "number", "strands", "filtered"),
    [
        (31, 1, "canonical", False), (15, 1, "both", False), (15, 1, "forward", False),
        (31, 1, "canonical", True), (5, 1, "both", True), (15, 2, "canonical", False),
    ],
)  # fmt: skip
def test_targets_are_those_of_all_matches(k, number, strands, filtered, monkeypatch):
    if not filtered:  # as in large texts
        monkeypatch.setattr(text_index, "FILTERED", 0)
    rng = random.Random(k)
    records = records_of(rng)[:number]
    reads = [(str(at), read_of(rng, records[0][1])) for at in range(160)]
    reads += [("poly", "A" * 120), ("motif", "CAG" * 40)] * 2
    pairs = [[one, other] for (_, one), (_, other) in zip(reads[::2], reads[1::2], strict=True)]
    both, *mates = (batch_of(some) for some in (reads, reads[::2], reads[1::2]))
    matcher = StreamMatcher.of(dictionary_of(records, k, strands), device="cpu")
    assert (matcher.match_in_part(both) is not None) == (number == 1 and k > 5)
    results_of = {
        len(batches): [matcher.match([batch], in_stream=False)[0] for batch in batches]
        for batches in ([both], mates)
    }
    shares = set()
    for windows, fraction in [(1, "0"), (14, "0"), (60, "0"), (3, "0.3"), (14, "0.75"), (1, "1")]:
        options = {"records": records, "strands": strands, "min_windows": windows}
        options["min_fraction"] = fraction
        rule = Assignment(windows, float(fraction))
        alone = [-1 if own is None else own for own in oracle.assigned(reads, k, **options)]
        of_pairs = [oracle.together(pair, k, **options) for pair in pairs]
        of_pairs = [-1 if own is None else own for own in of_pairs]
        for batches, together, want in (
            ([both], False, [alone]),
            (mates, False, [alone[::2], alone[1::2]]),
            ([both], True, [of_pairs]),
            (mates, True, [of_pairs]),
        ):
            found = assigned_reads(matcher, rule, batches, together=together)
            assert [each.tolist() for each in found] == want
            complete = assigned(matcher, rule, results_of[len(batches)], together=together)
            assert [each.tolist() for each in complete] == want
        shares.add(sum(own >= 0 for own in of_pairs))
    assert len(shares) > 3
    matcher.close()


def test_batches_without_reads_or_windows():
    records = records_of(random.Random(1))[:1]
    matcher = StreamMatcher.of(dictionary_of(records, 31, "canonical"), device="cpu")
    rule = Assignment(1, 0.0)
    for reads in ([], [("short", "ACGT"), ("none", "")]):
        for together in (False, True):
            found = assigned_reads(matcher, rule, [batch_of(reads)] * 2, together=together)
            assert [each.tolist() for each in found] == [[-1] * len(reads)] * (2 - together)
    matcher.close()
