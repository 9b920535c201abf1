# SPDX-License-Identifier: Apache-2.0
"""Which frames of a bag are decided, with what instruction, and what their answers are compared with. No models."""

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
    """A frame to decide. run: which instruction in a row this is; with a new one the history begins anew.

    reference: name of an action, "": none. carried_out: what the robot did next, for prompts that tell earlier actions.
    remembered: the frame is history for later ones.
    """

    frame: FrameEntry
    run: int
    instruction: str
    reference: str = ""
    carried_out: Action | None = None
    remembered: bool = True


@dataclass(frozen=True)
class ReplayPlan:
    """All tasks in the bag's order, where the references are from, and what must be said about them."""

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
    """Choose the frames. Raises EvaluationError when there is no instruction, or none of the labels fits a frame."""
    notes = list(contents.notes)
    if instruction is None and not contents.instructions:
        raise EvaluationError(
            "the bag holds no instruction (no std_msgs/String topic that ends in 'instruction'); give --instruction"
        )
    references: Mapping[int, str] = {stamp: one.action for stamp, one in contents.references.items()}
    source = contents.source
    if labels is not None:
        references, lost = match_labels(labels, contents.frames)
        source = "labels"
        if not references:
            raise EvaluationError(
                f"none of the {len(labels)} labels lies within 50 ms of a frame; the bag's first frame has the stamp "
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
        # Where decisions were recorded, their frames are what the robot remembered.
        remembered = recorded is not None or not contents.references
        tasks.append(ReplayTask(frame, run, words, reference, _BY_NAME.get(sent), remembered))
        if limit is not None and len(tasks) >= limit:
            break
    if not tasks:
        raise EvaluationError(
            "no frame of the bag came while an instruction was in force; give --instruction"
        )
    if unasked:
        notes.append(f"{unasked} frames came while no instruction was in force and were left out")
    return ReplayPlan(tuple(tasks), source, tuple(notes + asked.notes))


class _ActiveInstruction:
    """What was asked of the robot when a frame came."""

    def __init__(self, contents: BagContents, instruction: str | None) -> None:
        self._contents, self._given = contents, instruction
        self._run, self._last = 0, (0, "")
        self.notes: list[str] = []

    def instruction_at(self, frame: FrameEntry) -> tuple[int, str]:
        """(which instruction in a row, its words); words "" when the robot had none, or was commanded to stop."""
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
