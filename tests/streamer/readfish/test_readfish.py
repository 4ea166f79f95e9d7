"""``streamer.readfish`` inside readfish itself: its configuration, its loop, its decisions."""

from __future__ import annotations

import logging
import random
import sys
from types import SimpleNamespace

import pytest

from streamer.errors import StreamerError
from tests.data_files import write_fasta
from tests.reference import targets as oracle
from tests.waiting import until

if sys.version_info >= (3, 12):
    pytest.skip("readfish's mappy has no wheel for this Python", allow_module_level=True)

from readfish._cli_args import Chemistry
from readfish._cli_base import main
from readfish._config import Conf, make_decision
from readfish.entry_points.targets import Analysis
from readfish.plugins.utils import Action, Decision, Result

from streamer.readfish import Aligner

K = 15
ACTIONS = """
single_on = "stop_receiving"
multi_on = "stop_receiving"
single_off = "unblock"
multi_off = "unblock"
no_map = "proceed"
no_seq = "proceed"
"""
_TURNED = str.maketrans("ACGT", "TGCA")


def turned(letters):
    return letters.translate(_TURNED)[::-1]


def toml(tmp_path, contigs, *, targets, more=""):
    path = tmp_path / "run.toml"
    path.write_text(
        '[caller_settings."tests.streamer.readfish.letters_caller"]\n'
        f'[mapper_settings."streamer.readfish"]\nfn_idx_in = "{contigs}"\nk = {K}\n'
        f'min_windows = 3\nthreads = 1\n{more}\n[[regions]]\nname = "all"\n'
        f"targets = {targets!r}\n{ACTIONS}"
    )
    return path


@pytest.fixture
def genome(tmp_path):
    rng = random.Random(5)
    texts = ["".join(rng.choices("ACGT", k=2_000)) for _ in range(3)]
    # what both have is in doubt; the first in the file has it
    texts[1] = texts[1][:1_500] + turned(texts[0][:500])
    records = list(zip(("virus", "host", "other"), texts, strict=True))
    return records, write_fasta(tmp_path / "contigs.fa", records)


def sequences_of(records, seed):
    """(letters, contig, strand), contig None for letters of no contig."""
    rng = random.Random(seed)
    made = []
    for _ in range(60):
        contig, text = rng.choice(records)
        at = rng.randrange(500, 1_100)
        letters = list(text[at : at + rng.randrange(60, 400)])
        for _ in range(len(letters) // 50):
            letters[rng.randrange(len(letters))] = rng.choice("ACGTN")
        strand, joined = rng.choice((1, -1)), "".join(letters)
        made.append((joined if strand > 0 else turned(joined), contig, strand))
    made += [("".join(rng.choices("ACGT", k=300)), None, 0) for _ in range(10)]
    return [*made, ("", None, 0), ("ACGT", None, 0), ("AC-GT*" * 20, None, 0)]


def test_hits_are_the_assigned_contigs_with_their_strand(genome):
    records, path = genome
    made = sequences_of(records, 1)
    aligner = Aligner(reference=str(path), k=K, min_windows=3, min_fraction=0.2, threads=1)
    results = [Result(channel=1, read_id=str(i), seq=each[0]) for i, each in enumerate(made)]
    found = list(aligner.map_reads(iter(results)))
    aligner.disconnect()
    assert [each.read_id for each in found] == [each.read_id for each in results]
    reads = [(str(i), "N" if {*"-*"} & {*each[0]} else each[0]) for i, each in enumerate(made)]
    expected = oracle.assigned(
        reads,
        K,
        records=records,
        strands="canonical",
        mode="frozen",
        min_windows=3,
        min_fraction="0.2",
    )
    assert sum(each is not None for each in expected) > 50
    lengths = {name: len(text) for name, text in records}
    for result, owner, (_, _, strand) in zip(found, expected, made, strict=True):
        hits = [(hit.ctg, hit.strand, hit.r_st, hit.r_en) for hit in result.alignment_data]
        name = None if owner is None else records[owner][0]
        assert hits == ([] if name is None else [(name, strand, 0, lengths[name])])


def test_a_shared_part_has_the_strand_of_its_own_contig(genome):
    """Its k-mers stand the other way round in the contig where they come first."""
    records, path = genome
    aligner = Aligner(reference=str(path), k=K, threads=1)
    letters = records[1][1][1_300:1_700]  # 200 of its own, 200 that virus has turned
    (found,) = aligner.map_reads([Result(channel=1, read_id="r", seq=letters)])
    assert [(hit.ctg, hit.strand) for hit in found.alignment_data] == [("host", 1)]


@pytest.mark.parametrize(("targets", "decision"), [(["host"], "on"), (["virus", "other"], "off")])
def test_readfish_decides(genome, tmp_path, targets, decision):
    records, path = genome
    conf = Conf.from_file(toml(tmp_path, path, targets=targets), 512)
    aligner = conf.mapper_settings.load_object("Aligner")
    assert aligner.initialised
    letters = turned(records[1][1][100:400])
    results = [Result(1, "a", letters), Result(2, "b", "ACGTACGTACGTGGGGGTTTT"), Result(3, "c", "")]
    decisions = [make_decision(conf, each) for each in aligner.map_reads(results)]
    assert decisions == [Decision[f"single_{decision}"], Decision.no_map, Decision.no_seq]


class Sequencer:
    """What readfish asks of a sequencer: reads in pieces, and what it is told to do with them."""

    channel_count = 512
    signal_dtype, calibration_values = None, None

    def __init__(self, folder, chunks):
        self.mk_run_dir = folder
        self._chunks = list(chunks)
        self.wait_for_sequencing_to_start = True
        self.current_protocol_phase = 1
        self.unblocked, self.stopped, self.messages = [], [], []
        detection = SimpleNamespace(break_reads_after_seconds=SimpleNamespace(value=1.0))
        self.connection = SimpleNamespace(
            protocol=SimpleNamespace(get_run_info=lambda: SimpleNamespace(run_id="run")),
            analysis_configuration=SimpleNamespace(
                get_analysis_configuration=lambda: SimpleNamespace(read_detection=detection)
            ),
            device=SimpleNamespace(get_sample_rate=lambda: SimpleNamespace(sample_rate=5_000)),
            log=SimpleNamespace(send_user_message=lambda **said: self.messages.append(said)),
        )

    @property
    def is_sequencing(self):
        return bool(self._chunks)

    def get_read_chunks(self, batch_size, last):
        return self._chunks.pop(0)

    def unblock_read_batch(self, reads, duration):
        self.unblocked += reads

    def stop_receiving_batch(self, reads):
        self.stopped += reads


def test_readfish_unblocks_what_is_off_target(genome, tmp_path, monkeypatch):
    """Its own loop, from the phase before sequencing on; a read without a hit is seen again."""
    records, path = genome
    rng = random.Random(3)
    chunks, kinds = [], {}
    for turn in range(4):
        chunk = []
        for channel in range(1, 41):
            contig, text = rng.choice(records)
            at = rng.randrange(600, 1_200)
            letters = (
                text[at : at + 250] if rng.random() < 0.8 else "".join(rng.choices("ACGT", k=250))
            )
            kinds[f"{turn}-{channel}"] = contig if letters in text else None
            letters = letters if rng.random() < 0.5 else turned(letters)
            chunk.append((channel, (f"{turn}-{channel}", letters, None)))
        chunks.append(chunk)
    conf_path = toml(tmp_path, path, targets=["virus"])
    sequencer = Sequencer(tmp_path, chunks)
    monkeypatch.setattr(Analysis, "wait_for_sequencing", property(_begins_at_the_second_look))
    analysis = Analysis(
        sequencer, Conf.from_file(conf_path, 512), logging.getLogger("test"), debug_log=False,
        throttle=0.0, unblock_duration=0.1, dry_run=False, toml=str(conf_path),
        chemistry=Chemistry.SIMPLEX,
    )  # fmt: skip
    analysis.run()
    assert sorted(read for _, read in sequencer.unblocked) == sorted(
        read for read, contig in kinds.items() if contig in ("host", "other")
    )
    assert sorted(read for _, read in sequencer.stopped) == sorted(
        read for read, contig in kinds.items() if contig == "virus"
    )
    assert None in kinds.values()
    assert any("streamer.readfish" in said["user_message"] for said in sequencer.messages)


def _begins_at_the_second_look(analysis):
    waits = analysis.client.wait_for_sequencing_to_start
    analysis.client.wait_for_sequencing_to_start = False
    if waits:
        analysis.readfish_started_during_sequencing = False
    return waits


def test_readfish_validates_the_file(genome, tmp_path, capsys):
    _, path = genome
    with pytest.raises(SystemExit) as ended:
        main(["validate", str(toml(tmp_path, path, targets=["virus", "host,0,2000,+"]))])
    assert ended.value.code == 0
    bed = tmp_path / "targets.bed"
    bed.write_text("virus\t100\t900\tx\t0\t+\nvirus\t100\t900\tx\t0\t-\n")
    for targets, part in (
        (["host", "virus,100,900,+", "virus,100,900,-"], "virus,100,900"),
        (["host,0,1999,-"], "host,0,1999"),
        (["host,1500,9000,+"], "host,1500,9000"),
        (str(bed), "virus,100,900"),
    ):
        conf = Conf.from_file(toml(tmp_path, path, targets=targets), 512)
        aligner = conf.mapper_settings.load_object("Aligner")
        with pytest.raises(SystemExit, match=f"region all: .* intervals cannot .*: {part}"):
            aligner.describe(conf.regions, conf.barcodes)
        assert not aligner.initialised
        with pytest.raises(StreamerError, match=part):
            aligner.validate()
        aligner.disconnect()
    with pytest.raises(SystemExit) as ended:
        main(["validate", str(toml(tmp_path, path, targets=["virus", "viruz"]))])
    assert ended.value.code == f"targets of region all: not in {path}: viruz"
    bed.write_text("")
    with pytest.raises(SystemExit) as ended:
        main(["validate", str(toml(tmp_path, path, targets=str(bed)))])
    assert ended.value.code == f"targets of region all: {bed} names none"
    short = write_fasta(tmp_path / "short.fa", [*genome[0], ("few", "ACGT"), ("gaps", "ACGTN" * 9)])
    with pytest.raises(SystemExit) as ended:
        main(["validate", str(toml(tmp_path, short, targets=["virus", "few", "gaps"]))])
    assert ended.value.code == (
        f"targets of region all: can never match, no {K}-mer without an ambiguity code: few, gaps"
    )
    with pytest.raises(SystemExit) as ended:
        main(["validate", str(toml(tmp_path, path, targets=["virus"], more='targets = ["hast"]'))])
    assert ended.value.code == 1
    assert "targets of the plugin: not in" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({}, "give the FASTA file"),
        ({"reference": "a", "fn_idx_in": "a"}, "give the FASTA file"),
        ({"reference": "missing.fa"}, "missing.fa"),
        ({"min_windows": 0}, "min_windows is at least 1"),
        ({"min_fraction": 1.5}, "min_fraction from 0 to 1"),
        ({"k": 32}, "32"),
        ({"targets": ["host", "nowhere"]}, "targets of the plugin: not in .*: nowhere"),
        ({"targets": ["host,10,20,+"]}, "of the plugin: .* intervals cannot .*: host,10,20"),
        ({"targets": "host.bed"}, "a list of names"),
        ({"twice": True}, "two records are called virus"),
    ],
)
def test_refuses(genome, tmp_path, options, problem):
    records, path = genome
    if options.pop("twice", False):
        path = write_fasta(tmp_path / "twice.fa", [records[0], records[1], records[0]])
    if options and "reference" not in options:
        options["reference"] = str(path)
    elif problem.startswith("two"):
        options = {"reference": str(path)}
    with pytest.raises((StreamerError, ValueError), match=problem):
        Aligner(**options)


def test_an_unblock_reaches_the_action(genome, tmp_path):
    records, path = genome
    log = tmp_path / "hits.log"
    conf = Conf.from_file(toml(tmp_path, path, targets=["virus"], more=f'debug_log = "{log}"'), 512)
    _, condition = conf.get_conditions(1, None)
    aligner = conf.mapper_settings.load_object("Aligner")
    (result,) = aligner.map_reads([Result(1, "r", records[2][1][:300])])
    assert condition.get_action(make_decision(conf, result)) is Action.unblock
    line = "r\t300\tHit(ctg='other', strand=1"
    until(lambda: line in log.read_text(), "readfish's thread to write the line")
