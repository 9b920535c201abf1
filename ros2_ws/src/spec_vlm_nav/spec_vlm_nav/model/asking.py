# Copyright 2026 spec_vlm_nav maintainers
#
# Licensed under the Apache License, Version 2.0 (the "License");
# you may not use this file except in compliance with the License.
# You may obtain a copy of the License at
#
#     http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS,
# WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
# See the License for the specific language governing permissions and
# limitations under the License.

"""Builds the question for a model from a job. The settings choose the wording and the order of the answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TYPE_CHECKING

from spec_vlm_nav.camera.images import black_like, PictureOptions, prepare
from spec_vlm_nav.common.codes import ErrorCode
from spec_vlm_nav.common.errors import (
    FrameError,
    InstructionError,
    NavigationError,
    ParameterError,
    PromptError,
)
from spec_vlm_nav.language.grammar import action_grammar
from spec_vlm_nav.language.prompting import build_prompt, choose_frames, PromptSpec
from spec_vlm_nav.model.decider import ACTIONS, DecisionFailed, DecisionJob, DecoderSettings, ModelQuestion
from spec_vlm_nav.model.folders import folder_of, suited_preset
from specdec.errors import SpecdecError
from specdec.options import GenerationOptions

if TYPE_CHECKING:
    from specdec.models import Prompt
    from specdec.sampling.grammar import Grammars


def prompt_spec(model: str, preset: str) -> PromptSpec:
    """
    Return the prompt specification of a preset.

    For "auto" it is the file in the model's folder, otherwise the preset that suits the model.
    """
    if preset != "auto":
        return PromptSpec.preset(preset)
    folder = folder_of(model)
    return PromptSpec.from_model_folder(folder, suited_preset(folder))


def spec_of(settings: DecoderSettings) -> PromptSpec:
    """
    Return the prompt specification for these settings.

    Raises PromptError for an unknown preset, and ParameterError for an answer order that this
    wording does not support.
    """
    spec = prompt_spec(settings.draft_model, settings.prompt)
    try:
        return spec.ordered(settings.answer_order)
    except PromptError as error:
        raise ParameterError(
            f"parameter answer_order = {settings.answer_order!r} refused: {error}"
        ) from error


def grammars_of(tokenizer: Any) -> Grammars:
    """Return a grammar compiler for a model of which only the tokenizer is loaded."""
    from specdec.sampling.grammar import Grammars

    ends = {tokenizer.eos_token_id} - {None}
    return Grammars(tokenizer, 1 + max(tokenizer.get_vocab().values()), ends)


@dataclass(frozen=True)
class QuestionWriter:
    """
    Builds questions by `spec` for the model of `tokenizer`.

    grammars: compiles grammars for this model; None: no grammar is used.
    """

    spec: PromptSpec
    tokenizer: Any
    grammars: Grammars | None = None

    def ask(self, job: DecisionJob, settings: DecoderSettings) -> tuple[ModelQuestion, bytes]:
        """
        Return the question of a job and its frame as JPEG.

        Raises DecisionFailed if no prompt can be built for the job.
        """
        try:
            prompt, jpeg = self.prompt(job, settings.picture)
        except (FrameError, InstructionError) as error:
            raise DecisionFailed(ErrorCode.INVALID_INPUT, str(error)) from error
        except NavigationError as error:
            raise DecisionFailed(ErrorCode.INTERNAL, str(error)) from error
        return ModelQuestion(prompt, self.options(settings)), jpeg

    def options(self, settings: DecoderSettings) -> GenerationOptions:
        """Return the generation options. Raises ParameterError for a grammar that does not fit."""
        grammar = ""
        if settings.answer_grammar == ACTIONS and self.grammars is not None:
            action_first = settings.answer_order == "action_first"
            try:
                grammar = action_grammar(self.grammars, settings.max_new_tokens, action_first)
            except SpecdecError as error:
                raise ParameterError(f"parameter answer_grammar = {ACTIONS!r} refused: {error}") from error
        return GenerationOptions(
            settings.max_new_tokens, settings.temperature, settings.seed, grammar=grammar
        )

    def prompt(self, job: DecisionJob, picture: PictureOptions) -> tuple[Prompt, bytes]:
        """Return the prompt of a job and its frame as JPEG. Raises NavigationError."""
        spec = self.spec
        jpeg = prepare(job.frame.picture, spec.fitted(picture))
        black = black_like(jpeg) if spec.pad_history else None
        frames = choose_frames(spec, job.past, jpeg, black)
        return (
            build_prompt(spec, self.tokenizer, job.instruction, frames, job.last_actions),
            jpeg,
        )
