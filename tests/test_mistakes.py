"""Mistakes planted in the source, each of which a test of the quick lane must find.

A mistake replaces a line in a copy of the packages; the test that is named then fails there, in a
process of its own. Daemons with mistakes are in tests/simulation/mistakes.py, protocols with
mistakes in tests/fuzz/test_fuzz.py.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.data_files import ROOT

FOLDERS = ("streamer", "trie", "gpu", "benchmarks", "tests", "docs")


class Mistake(NamedTuple):
    """``right`` stands once in ``file`` and becomes ``wrong``; ``test``, in tests, finds it."""

    file: str
    right: str
    wrong: str
    test: str


SEQUENCES, MATCHING = "streamer/sequences", "streamer/matching"
CORE = "streamer/daemon/core"
MISTAKES = {
    # ---- readers ---------------------------------------------------------------------------------
    "qualities of any length": Mistake(
        f"{SEQUENCES}/fastq.py", "if count != letters:", "if count < 0:",
        f"{SEQUENCES}/test_fastq.py::test_damage_is_found_where_it_is",
    ),
    "a batch a record too long": Mistake(
        f"{SEQUENCES}/fasta.py", "state[RECORDS] >= state[MOST]", "state[RECORDS] > state[MOST]",
        f"{SEQUENCES}/test_reader.py::test_batches_of_any_size",
    ),
    "a BAM file without its end": Mistake(
        f"{SEQUENCES}/bgzf.py", "return self.bgzf and not (", "return False and not (",
        f"{SEQUENCES}/test_bgzf.py::test_the_end_however_it_comes",
    ),
    "text before a damage is lost": Mistake(
        f"{SEQUENCES}/decompression.py", "except BaseException:\n            if stop",
        "except BaseException:\n            if 0 > stop",
        f"{SEQUENCES}/test_contract_input.py::test_all_reads_in_front_of_a_cut",
    ),
    "half a record counts as read": Mistake(
        f"{SEQUENCES}/fastq.py", "self.offset -= self.rest", "self.offset -= 0",
        f"{SEQUENCES}/test_growing.py::test_every_length_from_every_record",
    ),
    "the first name of a batch": Mistake(
        f"{SEQUENCES}/repeated_names.py", "if slots[at]:\n            return",
        "if slots[at] and name:\n            return",
        f"{SEQUENCES}/test_repeated_names.py::test_many_names_and_none_again",
    ),
    "the number of the first record": Mistake(
        f"{SEQUENCES}/fastq.py", "first=records)", "first=0)",
        f"{SEQUENCES}/test_growing.py::test_a_fault_comes_behind_the_records_before_it",
    ),
    "labels of two columns": Mistake(
        f"{SEQUENCES}/context.py", "other.index + len(self.labels)", "other.index",
        f"{SEQUENCES}/test_context.py::test_columns_of_labels",
    ),
    # ---- matching --------------------------------------------------------------------------------
    "a window in no chunk": Mistake(
        f"{MATCHING}/match_engine.py", "start = max(end - (k - 1),", "start = max(end - (k - 2),",
        f"{MATCHING}/test_chunks.py::test_partition_of_windows",
    ),
    "windows behind the seed": Mistake(
        f"{MATCHING}/match_engine.py",
        "begin = max(seed_end - k + 1, read_start)", "begin = seed_end",
        f"{MATCHING}/test_limited_growth.py::test_equals_the_definition",
    ),
    "more than the fraction": Mistake(
        f"{MATCHING}/reports.py", "share >= self.min_fraction", "share > self.min_fraction",
        f"{MATCHING}/test_target_reports.py::test_a_fraction_is_met_by_a_quotient_that_is_equal",
    ),
    "one threshold is enough": Mistake(
        f"{MATCHING}/panel.py", "& (breadth >= self.breadth)", "| (breadth >= self.breadth)",
        f"{MATCHING}/test_target_tally.py::test_rows_and_enough_are_those_of_counting_anew",
    ),
    "a point of the curve lost": Mistake(
        f"{MATCHING}/novelty.py", "np.diff(cells, prepend=0) > 0", "np.diff(cells, prepend=0) > 1",
        f"{MATCHING}/test_novelty.py::test_the_curve_is_that_of_the_definition_for_any_batches",
    ),
    "bits of a part lost": Mistake(
        f"{MATCHING}/events.py", "there[i] |= part[i] << low", "there[i] = part[i] << low",
        f"{MATCHING}/test_event_bits.py::test_bits_of_parts_are_put_together_at_any_place",
    ),
    # ---- index -----------------------------------------------------------------------------------
    "strays lost when a table doubles": Mistake(
        "trie/index/kmer_index.py", "    for i in range(stray):\n        _place(",
        "    for i in range(stray - 1):\n        _place(",
        "trie/index/test_kmer_table.py::test_a_crowded_bucket_spills_around_its_region_and_survives"
        "_doubling",
    ),
    "known windows added": Mistake(
        "trie/index/kmer_index.py", "kept += np.int64(known[positions[j]] != MATCH)", "kept += 1",
        "trie/index/test_index.py::test_known_windows_are_left_out",
    ),
    "a gap across a block": Mistake(
        "trie/index/reference_text.py", "np.maximum(gaps[:, 0] - 31, 0)", "gaps[:, 0]",
        "trie/index/test_text_index.py::test_a_gap_code_is_no_base_wherever_it_stands",
    ),
    "four symbols of two parts": Mistake(
        "trie/index/reference_text.py", "|= self._packed[at : at + 1]", "|= 0",
        "streamer/dictionary/test_index.py::test_text_is_packed_in_parts",
    ),
    "shared windows cut by a part": Mistake(
        "streamer/dictionary/shared_windows.py", "!= windows[::2, 1:]).any(", ">= 0).any(",
        "streamer/dictionary/test_index.py::test_a_file_does_not_depend_on_threads_and_parts",
    ),
    "the nearest smaller code": Mistake(
        "trie/prefixes.py", "if low > 0:", "if low > 1:",
        "trie/test_codes.py::test_equals_the_walk",
    ),
    "a checksum is not compared": Mistake(
        "trie/index/index_file.py", "whole[at:done]) != checksum", "whole[at:done]) < 0",
        "streamer/dictionary/test_index.py::test_damaged_files",
    ),
    # ---- daemon and clients ----------------------------------------------------------------------
    "a revision takes all the time": Mistake(
        f"{CORE}/revision.py", "self._saved -= seconds", "self._saved -= 0 * seconds",
        f"{CORE}/test_revision.py::test_kept_batches_wait_for_others_but_for_their_share",
    ),
    "damage is passed over in silence": Mistake(
        f"{CORE}/sync.py", 'self._say(pull.route, "lost", fields, now=now)', "fields.clear()",
        f"{CORE}/test_sync_core.py::test_records_that_were_given_up_are_named",
    ),
    "a key sends twice its share": Mistake(
        f"{CORE}/producers.py",
        "gained = max(0.0, now - self._filled)", "gained = 2 * max(0.0, now - self._filled)",
        "streamer/daemon/security/test_rights.py::test_a_bucket_fills_up_to_a_second",
    ),
    "a producer without credit stays silent": Mistake(
        "streamer/client/core/producer.py",
        "return asks or anew or silent", "return anew or silent",
        "streamer/client/core/test_producer.py::test_what_it_needs_is_said_once_and_again_after"
        "_silence",
    ),
    "a checksum of a message is not compared": Mistake(
        "streamer/protocol/wire.py", "if sent != (computed", "if not sent and sent != (computed",
        "streamer/protocol/test_wire.py::test_every_flipped_bit_is_noticed",
    ),
    "files behind the mark count as sent": Mistake(
        "streamer/watching/ledger.py",
        '"DELETE FROM visits WHERE number > ?"', '"DELETE FROM visits WHERE number > ? AND 0"',
        "streamer/watching/test_ledger.py::test_what_is_behind_the_mark_never_happened",
    ),
    "a file is begun before that is stored": Mistake(
        "streamer/watching/ledger.py", "        self.end(visit)\n        self.store()\n",
        "        self.end(visit)\n",
        "streamer/watching/test_watcher.py::test_any_history_with_kills_counts_each_record_once",
    ),
    "files that were begun count as sent": Mistake(
        "streamer/watching/ledger.py", "self._recover(mark)", "pass",
        "streamer/watching/test_watcher.py::test_any_history_with_kills_counts_each_record_once",
    ),
    # ---- reports ---------------------------------------------------------------------------------
    "rows that were cut": Mistake(
        "streamer/reporting/reports.py", 'if not line.endswith(b"\\n"):\n            raise',
        "if not line:\n            raise",
        "streamer/reporting/test_report_command.py::test_a_file_cut_anywhere_is_refused_or_shows_whole"
        "_rows",
    ),
    "names as markup": Mistake(
        "streamer/reporting/figures.py", "return Markup(escape(shown))", "return Markup(shown)",
        "streamer/reporting/test_report_command.py::test_hostile_names_are_text",
    ),
    "N50 of more than half": Mistake(
        "streamer/reporting/reports.py", "if passed >= half:", "if passed > 1.05 * half:",
        "streamer/reporting/test_report_command.py::test_lengths_and_n50_are_those_of_the"
        "_definition",
    ),
    "targets beyond those shown": Mistake(
        "streamer/reporting/figures.py", "reads, bases = sum(", "reads, bases = max(",
        "streamer/reporting/test_report_command.py::test_of_many_targets_the_rest_is_counted",
    ),
    "more seen than there are": Mistake(
        "streamer/reporting/reports.py", "if seen > kmers or seen > matches:",
        "if seen > kmers and seen > matches:",
        "streamer/reporting/test_report_command.py::test_a_fault_is_one_line_with_its_place",
    ),
}  # fmt: skip


def run(folder, *tests):
    """pytest's exit code, 1 if a test failed, and its output."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-n", "0", "-x", "-m", "not slow", *tests],
        cwd=folder, env=os.environ | {"PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout


@pytest.fixture(scope="module")
def copy(tmp_path_factory) -> Path:
    """A copy of the project in which the tests pass; what has been compiled stays compiled."""
    folder = tmp_path_factory.mktemp("project")
    for name in FOLDERS:
        shutil.copytree(ROOT / name, folder / name)
    shutil.copy(ROOT / "pyproject.toml", folder)
    code, output = run(folder, *sorted({f"tests/{mistake.test}" for mistake in MISTAKES.values()}))
    assert code == 0, output
    return folder


def test_mistakes_are_in_lines_that_are_there():
    for mistake in MISTAKES.values():
        assert (ROOT / mistake.file).read_text().count(mistake.right) == 1, mistake
        path, _, function = mistake.test.partition("::")
        assert f"def {function}(" in (ROOT / "tests" / path).read_text(), mistake


@pytest.mark.slow
@pytest.mark.whole
@pytest.mark.timeout(3600)  # the first one compiles
@pytest.mark.parametrize("what", MISTAKES)
def test_a_mistake_is_found(what, copy):
    file, right, wrong, test = MISTAKES[what]
    path = copy / file
    before, times = path.read_text(), path.stat()
    path.write_text(before.replace(right, wrong))
    code, output = run(copy, f"tests/{test}")
    path.write_text(before)
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert code == 1, output
