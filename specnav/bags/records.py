# SPDX-License-Identifier: Apache-2.0
"""The files that a replay writes, as structs: `results.json` (schema 1) and `decisions.jsonl`. Times are in ms."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import msgspec

from specnav.results.demo import RunResults
from specnav.results.files import read_lines

DECISIONS_FILE = "decisions.jsonl"
FRAMES = "frames"


class DecisionRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One line of `decisions.jsonl`: one method's decision for one frame.

    reference: the recorded or labelled action of the frame, "" if there is none. action: "no action" if the answer
    holds none; "" if the decision failed, which `error` explains. decision_ms: from the start until the action sentence
    was verified, null without one. age_ms: the frame's age at that moment, in a replay at the bag's speed. joules: of
    this whole machine, from the frame to the end of the answer; null without a sensor. picture: file of the picture
    given to the model, "" if it was not kept.
    """

    frame: int
    stamp_ns: int
    method: str
    instruction: str
    reference: str
    action: str
    text: str = ""
    reasoning: str = ""
    error: str = ""
    decision_ms: float | None = None
    age_ms: float | None = None
    ttft_ms: float = 0.0
    total_ms: float = 0.0
    joules: float | None = None
    ids: list[int] = msgspec.field(default_factory=list)
    prompt_tokens: int = 0
    prompt_bytes: int = 0
    drafted: list[int] = msgspec.field(default_factory=list)
    accepted: list[int] = msgspec.field(default_factory=list)
    gained: list[int] = msgspec.field(default_factory=list)
    uplink_bytes: list[int] = msgspec.field(default_factory=list)
    downlink_bytes: list[int] = msgspec.field(default_factory=list)
    picture: str = ""

    @property
    def scored(self) -> bool:
        """Whether it counts for agreement."""
        return bool(self.reference) and not self.error


class TopicRecord(msgspec.Struct, frozen=True):
    """A topic of the bag."""

    name: str
    kind: str
    count: int


class SkippedRecord(msgspec.Struct, frozen=True):
    """Recorded messages that are not used. file: or topic; count: null if the file does not report it."""

    file: str
    count: int | None
    reason: str


class BagRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The replayed bag. references: where they come from. frames: number on the image topic; `selected` of them were to
    be decided. duration_s: from the first frame to the last, with long pauses shortened. messages_found: those used and
    those skipped, as far as their number is known.
    """

    path: str
    topics: list[TopicRecord]
    image_topic: str
    frames: int
    selected: int
    duration_s: float
    references: str = ""
    referenced: int = 0
    unusable: int = 0
    warnings: list[str] = msgspec.field(default_factory=list)
    messages_found: int = 0
    messages_used: int = 0
    messages_skipped: list[SkippedRecord] = msgspec.field(default_factory=list)


class ReplayRow(msgspec.Struct, frozen=True, kw_only=True):
    """The figures of one method; null if not measured.

    agreement: share of scored decisions whose action equals the reference. stop_precision: share of its stops that are
    stops in the reference; stop_recall: share of the reference's stops that it decided. confusion: counts, with a row
    for every reference action and a column for every decided one, both in the order of `ReplayResults.actions`.
    frames_per_s: decisions per second of deciding. identical: every answer has the token ids of `identical_to`; null:
    nothing to compare. skipped: frames that arrived while it was busy, in a replay at the bag's speed.
    """

    method: str
    decisions: int
    scored: int
    agreed: int
    agreement: float | None
    parse_failures: int
    failures: int
    decision_ms_p50: float | None
    decision_ms_p95: float | None
    decision_ms_p99: float | None
    total_ms_p50: float | None
    ttft_ms_p50: float | None
    frames_per_s: float | None
    tokens: int
    tau: float | None
    acceptance: float | None
    rounds: int
    uplink_bytes: int
    downlink_bytes: int
    prompt_bytes: int
    stops_said: int
    stops_in_reference: int
    stop_precision: float | None
    stop_recall: float | None
    confusion: list[list[int]]
    identical_to: str = ""
    identical: bool | None = None
    different_answers: int = 0
    compared_answers: int = 0
    age_ms_p50: float | None = None
    age_ms_p95: float | None = None
    skipped: int = 0
    joules_per_decision: float | None = None


class Pairing(msgspec.Struct, frozen=True, kw_only=True):
    """A method of this run compared with one of an earlier run, over the frames that both decided."""

    method: str
    earlier_method: str
    frames: int
    same_action: int
    same_tokens: int
    agreement: float | None
    earlier_agreement: float | None
    decision_ms_p50: float | None
    earlier_decision_ms_p50: float | None
    decision_ms_p95: float | None
    earlier_decision_ms_p95: float | None
    changed: list[tuple[int, str, str, str]]  # stamp, this action, the earlier one, the reference

    @property
    def p50_change(self) -> float | None:
        """Relative change of the median decision time (negative: faster)."""
        if not self.earlier_decision_ms_p50 or self.decision_ms_p50 is None:
            return None
        return self.decision_ms_p50 / self.earlier_decision_ms_p50 - 1


class RunComparison(msgspec.Struct, frozen=True, kw_only=True):
    """Comparison of two runs. only_here, only_there: frames that the other run did not decide."""

    run: str
    pairs: list[Pairing]
    only_here: int
    only_there: int


class ReplayResults(RunResults, frozen=True, kw_only=True):
    """`results.json` of a replay. frames_per_s: all decisions over the time from the first to the last."""

    bag: BagRecord
    actions: list[str]
    rows: list[ReplayRow]
    identical_tokens: bool | None
    frames_per_s: float | None
    comparison: RunComparison | None = None


def append_decisions(run: Path, records: Iterable[DecisionRecord]) -> None:
    """Append lines to decisions.jsonl."""
    with (run / DECISIONS_FILE).open("ab") as stream:
        stream.write(b"".join(msgspec.json.encode(record) + b"\n" for record in records))


def load_decisions(run: Path) -> list[DecisionRecord]:
    """The decisions of a run; an incomplete last line of a killed run is dropped. Raises EvaluationError."""
    advice = "give the folder of a replay"
    return read_lines(run / DECISIONS_FILE, DecisionRecord, "a replay", advice)
