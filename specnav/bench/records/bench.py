# SPDX-License-Identifier: Apache-2.0
"""The files of a bench run as structs: `results.json`, `rounds.jsonl` and `answers.jsonl`.

They are saved after every question, so that an interrupted run can be resumed.

Fields keep their names within a schema (docs/public_api.md); new ones may be added. Times are milliseconds. Rounds are
`RoundStats` of `specdec`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

import msgspec

from specdec.edge.stats import RoundStats
from specnav.bench.data.points import PaperFigure, PointRecord
from specnav.bench.data.questions import Question
from specnav.results.demo import RunResults
from specnav.results.files import read_lines, write_bytes_atomic
from specnav.results.trace import Span

ROUNDS_FILE, ANSWERS_FILE = "rounds.jsonl", "answers.jsonl"


class MeasuredAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """One answer to one prompt, as a contestant gave it.

    ids: the answer without its end-of-sequence token. wall_ms: as seen by the caller, including prefill.
    draft_forwards: forward passes of the draft model after its prompt; null without a draft model.
    predrafts: verdicts that arrived while a draft was being prepared ahead; predraft_hits: how many of them kept it.
    floor_ms: see specnav.bench.records.floor.
    has_link: false for a contestant in one process, whose bytes are not measured.
    """

    ids: list[int]
    finish: str
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


class AnswerRecord(MeasuredAnswer, frozen=True, kw_only=True):
    """One line of `answers.jsonl`: one turn of one question, answered by one contestant.

    joules: energy of the whole machine, which both sides share here; null without a sensor (specdec.energy).
    digest: of the question; empty in files of earlier versions.
    """

    method: str
    source: str
    question_id: str
    turn: int
    prompt_tokens: int
    joules: float | None = None
    digest: str = ""

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
    speedup_vs_ar: float | None  # ratio of tokens_per_s; null without `ar` in the run
    ttft_ms: float | None  # median over answers
    tpot_ms: float | None  # median over answers: time after the first token / number of tokens after it
    tau: float | None  # tokens gained per round
    acceptance: float | None  # share of draft tokens accepted; null if nothing is drafted
    rounds: int
    uplink_bytes_per_round: float | None
    downlink_bytes_per_round: float | None
    draft_forwards: int | None
    verify_forwards: int
    predraft_hit_rate: float | None  # null if nothing was drafted ahead
    identical_to_ar: bool | None  # null: `ar` is not in the run, or sampled ids cannot be compared
    overhead_over_floor: float | None  # see specnav.bench.records.floor; null without a link
    # -- added since the first version of the schema
    answers: int = 0
    different_answers: int = 0
    prompt_bytes: float | None = None
    overhead_ms_per_round: float | None = None
    edge_busy: float | None = None  # busy share of the wall time, from the timelines
    cloud_busy: float | None = None
    resumes: int = 0
    accepted: float | None = None  # draft tokens accepted per round
    lossy: bool = False  # as published: sampled answers do not follow the target's distribution
    # only where drafts are prepared for verdicts (FSD); null elsewhere
    miss_rate: float | None = None  # share of verdicts whose next draft was not completely prepared
    # r of the latency formula: share of draft tokens drafted after the verdict
    redrafted: float | None = None
    # Tr: median time from a verdict to sending the next draft, where that was prepared
    sync_ms: float | None = None
    hints_per_round: float | None = None
    whole: float | None = None  # share of drafts that were fully accepted; null if nothing is drafted
    # mean per round: wait for the verdict minus its forward and queue; only for drafts sent one at a time
    comm_ms: float | None = None
    modes: dict[str, int] = msgspec.field(default_factory=dict)  # rounds by the controller's choice
    # half precision: answers that deviated from `ar` at a near-tie, and those that deviated elsewhere
    near_ties: int = 0
    errors: int = 0
    largest_margin: float | None = None  # between logits, over all places where an answer deviated from `ar`
    joules_per_answer: float | None = None  # energy of the whole machine; null without a sensor

    @property
    def as_ar(self) -> bool | None:
        """Whether the ids equal those of `ar` except at near-ties; None: not compared."""
        return True if self.near_ties and not self.errors else self.identical_to_ar


class AcceptanceRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A run's emulated acceptance (specnav.bench.runner.acceptance): the draft is the target with disturbed logits.

    asked, words: the requested acceptance, as a setting and for readers. gamma: draft tokens per round of a tau.
    strength, seed: of the noise. achieved: acceptance of `sd` on `questions` questions with `positions` positions;
    tolerance: its largest allowed error. ceiling: the target's acceptance without noise.
    entropy_right, entropy_wrong: the target's mean entropy in nats where the draft is right and where it is wrong.
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
        coarse = "" if off <= self.tolerance else "; too few answers to come closer"
        return (
            f"acceptance emulated: {self.words} ± {self.tolerance:g} requested, {self.achieved:.3f} reached on "
            f"{self.questions} question{'' if self.questions == 1 else 's'}{coarse}; the draft has the target's "
            f"weights, with noise of strength {self.strength:.3g} on its logits (without noise: {self.ceiling:.2f})"
        )


class Flip(msgspec.Struct, frozen=True):
    """The first token at which an answer deviates from that of `ar`.

    place: index of the token. margin: difference of both tokens' logits, computed by the target alone.
    """

    method: str
    source: str
    question_id: str
    turn: int
    place: int
    margin: float


class Skipped(msgspec.Struct, frozen=True):
    """A question that was put to no contestant, and why."""

    source: str
    question_id: str
    reason: str


class BenchResults(RunResults, frozen=True, kw_only=True):
    """`results.json` of a bench run."""

    rows: list[BenchRow]
    # -- added since the first version of the schema
    point: PointRecord | None = None
    skipped: list[Skipped] = msgspec.field(default_factory=list)
    asked: int = 0  # questions planned for every contestant
    notes: list[str] = msgspec.field(default_factory=list)  # further remarks for the reader
    flips: list[Flip] = msgspec.field(default_factory=list)  # half precision: deviations from `ar`
    acceptance: AcceptanceRecord | None = None  # null unless emulated
    numeric_noise: float = 0.0  # difference of a position's logits, computed alone and in a batch

    @property
    def printed(self) -> list[PaperFigure]:
        """The figures that the operating point's paper prints."""
        return self.point.figures if self.point else []


def load_answers(run: Path) -> list[AnswerRecord]:
    """The answers of a run; none before the first. Raises EvaluationError."""
    path = run / ANSWERS_FILE
    return read_lines(path, AnswerRecord, "a run", "remove that line or the folder") if path.exists() else []


class BenchJournal:
    """Answers by contestant and question. `results` makes the current results.json from the answers so far."""

    def __init__(
        self,
        run: Path,
        results: Callable[[Sequence[AnswerRecord]], BenchResults],
        earlier: Iterable[AnswerRecord] = (),
    ) -> None:
        """Start from the answers of an earlier run with the same settings and rewrite both files."""
        self._run = run
        self._results = results
        self.answers: list[AnswerRecord] = list(earlier)
        self._turns = _turns(self.answers)
        write_bytes_atomic(run / ANSWERS_FILE, _lines(self.answers))
        write_bytes_atomic(run / ROUNDS_FILE, _lines(_rounds(self.answers)))
        self.settle()

    def has(self, question: Question, method: str) -> bool:
        """Whether every turn of the question was answered by the contestant."""
        return self._turns[method, question.source, question.question_id] >= len(question.turns)

    def add(self, records: Sequence[AnswerRecord]) -> None:
        """Append all turns of one question by one contestant."""
        for name, data in ((ANSWERS_FILE, _lines(records)), (ROUNDS_FILE, _lines(_rounds(records)))):
            with (self._run / name).open("ab") as stream:
                stream.write(data)
        self.answers += records
        self._turns += _turns(records)

    def settle(self) -> None:
        """Write results.json from the answers so far."""
        self._results(self.answers).save(self._run)


def _turns(answers: Iterable[AnswerRecord]) -> Counter[tuple[str, str, str]]:
    """How many turns of a question a contestant has answered."""
    return Counter((one.method, one.source, one.question_id) for one in answers)


def whole_questions(
    answers: Sequence[AnswerRecord], questions: Sequence[Question], methods: Sequence[str]
) -> list[AnswerRecord]:
    """The answers of an earlier run that this one can reuse: same methods and questions, with every turn answered."""
    whole = {(name, q.source, q.question_id): len(q.turns) for q in questions for name in methods}
    counts = _turns(answers)
    return [one for one in answers if counts[key := (one.method, *one.key[:2])] == whole.get(key)]


def changed_questions(answers: Sequence[AnswerRecord], questions: Sequence[Question]) -> list[str]:
    """Names of the questions whose text is not the one that was answered."""
    texts = {(one.source, one.question_id): one.digest for one in questions}
    changed = (one for one in answers if one.digest and texts.get(one.key[:2], one.digest) != one.digest)
    return list(dict.fromkeys(f"{one.source} {one.question_id}" for one in changed))


def _rounds(records: Iterable[AnswerRecord]) -> Iterator[dict[str, object]]:
    """Lines of `rounds.jsonl`: the answer's key, the round's number, and the fields of RoundStats."""
    for record in records:
        of = {name: getattr(record, name) for name in ("method", "source", "question_id", "turn")}
        for number, one in enumerate(record.rounds):
            yield {**of, "round": number, **asdict(one)}


def _lines(records: Iterable[object]) -> bytes:
    return b"".join(msgspec.json.encode(record) + b"\n" for record in records)
