# SPDX-License-Identifier: Apache-2.0
"""What a bench run leaves on disk: `results.json`, `rounds.jsonl` and `answers.jsonl`, as structs.

Contract fields keep the names of ARCHITECTURE.md; fields after them are additions. Times are milliseconds. Rounds are
the core's own records.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from specdec.edge.stats import RoundStats
from specnav.bench.data.points import PaperFigure, PointRecord
from specnav.results.demo import RESULTS_FILE, Setting, Versioned
from specnav.results.files import read_json, write_json
from specnav.results.trace import Span

ROUNDS_FILE, ANSWERS_FILE = "rounds.jsonl", "answers.jsonl"


class AnswerRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One line of `answers.jsonl`: one turn of one question, answered by one contestant.

    ids: the answer without its end-of-sequence token. wall_ms: as the caller saw it, prefill included.
    draft_forwards: passes of the draft model after its prompt; null for a contestant that has none.
    predrafts: verdicts that came while something was drafted ahead; predraft_hits: how many left it standing.
    floor_ms: see specnav.bench.records.floor.
    has_link: false for a contestant in one process, whose bytes are not a measurement.
    joules: of the whole machine, which both sides share here; null without a sensor (specdec.energy).
    """

    method: str
    source: str
    question_id: str
    turn: int
    ids: list[int]
    finish: str
    prompt_tokens: int
    wall_ms: float
    ttft_ms: float
    rounds: list[RoundStats]
    timeline: list[Span] = msgspec.field(default_factory=list)
    draft_forwards: int | None = None
    verify_forwards: int = 0
    floor_ms: float | None = None
    has_link: bool = True
    prompt_bytes: int = 0
    resumes: int = 0
    predrafts: int = 0
    predraft_hits: int = 0
    joules: float | None = None

    @property
    def key(self) -> tuple[str, str, int]:
        """Which turn of which question."""
        return self.source, self.question_id, self.turn


class BenchRow(msgspec.Struct, frozen=True, kw_only=True):
    """The figures of one contestant over the questions that every contestant answered."""

    method: str
    questions: int
    tokens: int
    tokens_per_s: float | None
    speedup_vs_ar: float | None  # of tokens_per_s; null without `ar` in the run
    ttft_ms: float | None  # median over answers
    tpot_ms: float | None  # median over answers: time after the first token over the tokens after it
    tau: float | None  # tokens gained a round
    acceptance: float | None  # share of draft tokens accepted; null where nothing is drafted
    rounds: int
    uplink_bytes_per_round: float | None
    downlink_bytes_per_round: float | None
    draft_forwards: int | None
    verify_forwards: int
    predraft_hit_rate: float | None  # null where nothing was drafted ahead
    identical_to_ar: bool | None  # null: `ar` is not in the run, or sampling that cannot be compared
    overhead_over_floor: float | None  # see specnav.bench.records.floor; null without a link
    # -- additions to the contract
    answers: int = 0
    different_answers: int = 0
    prompt_bytes: float | None = None
    overhead_ms_per_round: float | None = None
    edge_busy: float | None = None  # share of the wall time, from the timelines
    cloud_busy: float | None = None
    resumes: int = 0
    accepted: float | None = None  # draft tokens accepted a round
    lossy: bool = False  # as published: sampled answers do not follow the target's distribution
    # where drafts are prepared for verdicts (FSD); null elsewhere
    miss_rate: float | None = None  # share of the verdicts whose next draft did not stand ready, whole
    # r of the latency formula: share of draft tokens drafted after the verdict
    redrafted: float | None = None
    # Tr: median time from a verdict to the next draft's leaving, where that stood ready
    sync_ms: float | None = None
    hints_per_round: float | None = None
    whole: float | None = None  # share of drafts that were accepted to their end; null where nothing is drafted
    # mean of a round: waiting for the verdict less the forward and its queue; of drafts that leave one at a time
    comm_ms: float | None = None
    modes: dict[str, int] = msgspec.field(default_factory=dict)  # rounds by what a controller chose
    # half precision: answers that left `ar` where two tokens were nearly equal, and where they were not
    near_ties: int = 0
    errors: int = 0
    largest_margin: float | None = None  # of logits, where an answer left `ar`
    joules_per_answer: float | None = None  # of the whole machine; null without a sensor


class AcceptanceRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The emulated acceptance of a run (specnav.bench.acceptance): the draft is the target, its logits disturbed.

    asked, words: what was asked for. gamma: of a tau. strength, seed: of the noise. achieved: for `sd`, on this many
    of the run's questions and positions; tolerance: how far that may be off. ceiling: what the target reaches
    undisturbed. entropy_right, entropy_wrong: the target's mean entropy where the draft is right and where it is
    wrong, nats.
    """

    asked: str
    words: str
    gamma: int
    strength: float
    seed: int
    achieved: float
    tolerance: float
    ceiling: float
    positions: int
    questions: int
    entropy_right: float | None = None
    entropy_wrong: float | None = None

    @property
    def line(self) -> str:
        """One line for reports."""
        off = abs(self.achieved - float(self.asked.partition(":")[2].partition("@")[0]))
        coarse = "" if off <= self.tolerance else "; the answers are too few to come closer"
        return (
            f"acceptance emulated: {self.words} ± {self.tolerance:g} asked, {self.achieved:.3f} reached on "
            f"{self.questions} question{'' if self.questions == 1 else 's'}{coarse}; the draft is the target's own "
            f"weights, its logits disturbed by noise of {self.strength:.3g} (without: {self.ceiling:.2f})"
        )


class Flip(msgspec.Struct, frozen=True):
    """Where an answer left that of `ar`. place: index of the token. margin: between the logits of both tokens, on the
    target alone.
    """

    method: str
    source: str
    question_id: str
    turn: int
    place: int
    margin: float


class Skipped(msgspec.Struct, frozen=True):
    """A question no contestant was asked, and why."""

    source: str
    question_id: str
    reason: str


class BenchResults(Versioned, frozen=True, kw_only=True):
    """`results.json` of a bench run."""

    config: dict[str, Setting]
    machine: dict[str, Setting]
    rows: list[BenchRow]
    # -- additions to the contract
    point: PointRecord | None = None
    skipped: list[Skipped] = msgspec.field(default_factory=list)
    asked: int = 0  # questions the run was to put to every contestant
    interrupted: bool = False
    error: str = ""  # one line; empty when the run ended well
    notes: list[str] = msgspec.field(default_factory=list)  # what else the reader must know
    started_at: str = ""
    wall_s: float = 0.0
    flips: list[Flip] = msgspec.field(default_factory=list)  # half precision: where answers left those of `ar`
    acceptance: AcceptanceRecord | None = None  # emulated
    numeric_noise: float = 0.0  # of logits: how far those of one position differ that came alone and with others

    @property
    def printed(self) -> list[PaperFigure]:
        """What the paper of the point prints."""
        return self.point.figures if self.point else []


def save_bench(run: Path, results: BenchResults) -> Path:
    """Write `results.json` into a run folder, atomically."""
    path = run / RESULTS_FILE
    write_json(path, results)
    return path


def load_bench(run: Path) -> BenchResults:
    """Read `results.json` of a bench run's folder."""
    return read_json(run / RESULTS_FILE, BenchResults)
