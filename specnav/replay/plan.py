# SPDX-License-Identifier: Apache-2.0
"""Chooses a bag's frames, their instructions and the references to compare answers with. No model is loaded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from spec_vlm_nav.common.errors import InstructionError
from spec_vlm_nav.language.actions import ACTION_SENTENCES, Action
from spec_vlm_nav.language.prompting import clean_instruction
from spec_vlm_nav.language.stop_words import is_stop
from specnav.bags.contents import NO_ACTION, BagContents, FrameEntry
from specnav.bags.labels import Label, match_labels
from specnav.results.errors import EvaluationError

VOCABULARY: dict[str, str] = {sentence: action.short for sentence, action in ACTION_SENTENCES.items()}
ACTIONS: tuple[str, ...] = (*VOCABULARY.values(), NO_ACTION)
_BY_NAME: dict[str, Action] = {action.short: action for action in ACTION_SENTENCES.values()}


@dataclass(frozen=True)
class ReplayTask:
    """A frame to decide.

    Attributes:
        frame: The frame.
        run: Number of the instruction in the bag's sequence; the history starts afresh with each.
        instruction: The instruction in force.
        reference: Name of an action; "" without one.
        carried_out: What the robot did next, for prompts that list earlier actions.
        remembered: Whether the frame joins the history of later ones.
    """

    frame: FrameEntry
    run: int
    instruction: str
    reference: str = ""
    carried_out: Action | None = None
    remembered: bool = True


@dataclass(frozen=True)
class ReplayPlan:
    """All tasks in the bag's order, the source of their references, and notes for the report."""

    tasks: tuple[ReplayTask, ...]
    references: str
    notes: tuple[str, ...]


def make_plan(
    contents: BagContents,
    instruction: str | None,
    labels: Sequence[Label] | None,
    every: int,
    limit: int | None,
) -> ReplayPlan:
    """Choose the frames to decide.

    Args:
        contents: The bag's contents.
        instruction: Replaces the bag's instructions; None: use those.
        labels: Replace the bag's references; None: use those.
        every: Take every N-th frame, and all frames with a reference.
        limit: Stop after this many tasks; None: no limit.

    Returns:
        The tasks, with notes for the report.

    Raises:
        EvaluationError: There is no instruction, or no label matches a frame.
    """
    notes = list(contents.notes)
    if instruction is None and not contents.instructions:
        raise EvaluationError(
            "the bag contains no instruction (no std_msgs/String topic that ends in 'instruction'); give --instruction"
        )
    references: Mapping[int, str] = {stamp: one.action for stamp, one in contents.references.items()}
    source = contents.source
    if labels is not None:
        references, lost = match_labels(labels, contents.frames)
        source = "labels"
        if not references:
            raise EvaluationError(
                f"none of the {len(labels)} labels is within 50 ms of a frame; the bag's first frame is stamped "
                f"{contents.frames[0].stamp_ns / 1e9:.9f} s"
            )
        if lost:
            more = "" if len(lost) == 1 else f" and {len(lost) - 1} more"
            notes.append(f"no frame within 50 ms of the label on line {lost[0].line}{more}")
    asked = _ActiveInstruction(contents, instruction)
    tasks: list[ReplayTask] = []
    unasked = waiting = 0
    for frame in contents.frames:
        run, words = asked.instruction_at(frame)
        if not words:
            unasked += 1
            continue
        reference = references.get(frame.stamp_ns, "")
        waiting += 1
        if not reference and (waiting - 1) % every:
            continue
        recorded = contents.references.get(frame.stamp_ns)
        sent = recorded.sent or recorded.action if recorded else reference
        # If the bag has recorded decisions, the robot remembered their frames and no others.
        remembered = recorded is not None or not contents.references
        tasks.append(ReplayTask(frame, run, words, reference, _BY_NAME.get(sent), remembered))
        if limit is not None and len(tasks) >= limit:
            break
    if not tasks:
        raise EvaluationError(
            "no frame of the bag was taken while an instruction was in force; give --instruction"
        )
    if unasked:
        notes.append(f"{unasked} frames were left out: no instruction was in force")
    return ReplayPlan(tuple(tasks), source, tuple(notes + asked.notes))


class _ActiveInstruction:
    """Finds the instruction in force at a frame."""

    def __init__(self, contents: BagContents, instruction: str | None) -> None:
        self._contents, self._given = contents, instruction
        self._run, self._last = 0, (0, "")
        self.notes: list[str] = []

    def instruction_at(self, frame: FrameEntry) -> tuple[int, str]:
        """Return the number of the instruction in the bag's sequence, and its text.

        The text is "" if the robot had no instruction, or had been told to stop.
        """
        if self._given is not None:
            return 0, self._given
        number, words = self._contents.instruction_at(frame)
        if is_stop(words):
            words = ""
        elif words:
            try:
                words = clean_instruction(words)
            except InstructionError as error:
                if str(error) not in self.notes:
                    self.notes.append(str(error))
                words = ""
        if (number, words) != self._last:
            self._run, self._last = self._run + 1, (number, words)
        return self._run, words
