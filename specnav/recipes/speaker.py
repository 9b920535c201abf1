# SPDX-License-Identifier: Apache-2.0
"""A saved model as a speaker in rollouts: greedy answers to a batch of frames, and agreement with other answers.

It reads the same folders and uses the same prompt as the robot.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import cv2
import numpy as np
import torch

from spec_vlm_nav.language.prompting import PromptSpec, build_prompt
from specdec.models import EncodedPrompt
from specnav.recipes.drafts.network import DraftNetwork
from specnav.recipes.questions import ANSWER

if TYPE_CHECKING:
    from navsim.world import World
    from specnav.recipes.rollouts import EpisodeRollout

BATCH = 64
LIMIT = ANSWER + 6
"""Most tokens of an answer; answers in training have at most ANSWER."""


class ModelSpeaker:
    """Answers a round of rollouts with one model: on a GPU where there is one, as recipes train."""

    def __init__(self, folder: Path) -> None:
        """Load the model. Raises ModelError and TrainingError for a folder without a vision-language model."""
        self.network = DraftNetwork(str(folder))
        self.spec = PromptSpec.from_model_folder(folder)

    def answer(self, runs: Sequence[EpisodeRollout], frames: Sequence[np.ndarray], world: World) -> list[str]:
        """See rollouts.Speaker."""
        instructions = [run.episode.instruction for run in runs]
        said: list[list[int]] = []
        for at in range(0, len(runs), BATCH):
            said += self.say(instructions[at : at + BATCH], frames[at : at + BATCH])
        tokenizer = self.network.loaded.tokenizer
        return [tokenizer.decode(ids, skip_special_tokens=True) for ids in said]

    def say(self, instructions: Sequence[str], frames: Sequence[np.ndarray]) -> list[list[int]]:
        """Ids of the greedy answers, including the end of turn if it came within LIMIT tokens."""
        return self.network.answer_group(self._prompts(instructions, frames), LIMIT)

    def ids(self, answer: str) -> list[int]:
        """Ids of an answer, including the end of turn."""
        tokenizer = self.network.loaded.tokenizer
        return [*tokenizer(answer, add_special_tokens=False)["input_ids"], tokenizer.eos_token_id]

    def foretells(self, instruction: str, frame: np.ndarray, answer: Sequence[int]) -> list[bool]:
        """For each id of an answer, whether it is the model's likeliest, given the ids before."""
        (prompt,) = self._prompts([instruction], [frame])
        session = self.network.loaded.new_session()
        rows = [session.prefill(prompt)[None]]
        if len(answer) > 1:
            rows.append(session.extend(answer[:-1]))
        likeliest: list[int] = torch.cat(rows).argmax(-1).tolist()
        return [one == other for one, other in zip(likeliest, answer, strict=True)]

    @torch.inference_mode()
    def _prompts(self, instructions: Sequence[str], frames: Sequence[np.ndarray]) -> list[EncodedPrompt]:
        """The robot's prompts, encoded; all frames pass the vision tower in one batch."""
        model = self.network.loaded
        pictures = [cv2.imencode(".png", frame[:, :, ::-1])[1].tobytes() for frame in frames]
        seen = model.look([model.decode(picture) for picture in pictures])
        return [
            model.encode(build_prompt(self.spec, model.tokenizer, instruction, [picture]), [look])
            for instruction, picture, look in zip(instructions, pictures, seen, strict=True)
        ]
