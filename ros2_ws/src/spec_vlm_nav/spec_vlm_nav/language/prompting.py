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

"""
Builds the prompt of a decision from an instruction, past actions and camera frames.

A prompt SPEC defines the wording (order, last actions, history frames), so that a model is prompted
as it was trained. It is stored as `nav_prompt.json` in the model's folder. Text from outside never
becomes a special token. A spec also names the exploration policy whose language the model speaks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace
import json
from pathlib import Path
import string
from typing import Any, TYPE_CHECKING

from spec_vlm_nav.camera.images import PictureOptions
from spec_vlm_nav.common.errors import InstructionError, ParameterError, PromptError
from spec_vlm_nav.language.actions import Action, ACTION_SENTENCES

if TYPE_CHECKING:
    from specdec.models import Prompt

SPEC_FILE = "nav_prompt.json"
FRAME = "<|vision_start|><|image_pad|><|vision_end|>"
IMAGE_PAD = "<|image_pad|>"
MAX_INSTRUCTION_CHARS = 500
_FIELDS = {"instruction", "last_actions", "history", "frame"}
FRONTIER_SEARCH, NONE = "frontier_search", "none"
POLICIES = (FRONTIER_SEARCH, NONE)
AUTO = "auto"  # the policy that the model's prompt spec declares


def fitting_policy(wanted: str, spoken: str, model: str) -> str:
    """
    Return the policy to use.

    wanted: the parameter `exploration`. spoken: the policy that the model's prompt specification
    declares. Raises ParameterError for a policy that does not fit the model.
    """
    if wanted == AUTO:
        return spoken
    if wanted == NONE or spoken != NONE:
        return wanted
    raise ParameterError(
        f"parameter exploration = '{wanted}' refused: {model} does not use the language of this "
        "policy (its nav_prompt.json does not declare it); use none, or auto"
    )


@dataclass(frozen=True)
class PromptSpec:
    """
    The wording of a prompt.

    template: has the fields {instruction} and {frame} (the current frame), and optionally {history}
    (earlier frames, oldest first) and {last_actions} (the newest `last_actions` actions, oldest
    first, joined by `action_separator`). It may contain special tokens of the model as text.
    action_first: the template that asks for the action before the reasoning; "": not supported.
    exploration: the exploration policy whose language the model uses, or "none".
    picture: width and height that the model was trained on; None: the camera's, within the pixel
    budget.
    """

    name: str
    template: str
    last_actions: int = 0
    no_actions: str = "none"
    action_separator: str = ", "
    history_frames: int = 0
    # "even": spread over all past frames, including the first; or "latest"
    history_sampling: str = "even"
    pad_history: bool = False  # pad missing history with black frames in front; else fewer frames
    max_instruction_chars: int = MAX_INSTRUCTION_CHARS
    action_first: str = ""
    exploration: str = "none"
    picture: tuple[int, int] | None = None

    def __post_init__(self) -> None:
        if self.picture is not None:
            size = tuple(self.picture)  # JSON has lists
            if len(size) != 2 or not all(type(n) is int and 0 < n <= 8192 for n in size):
                raise PromptError(f"prompt '{self.name}': picture must be [width, height] in pixels")
            object.__setattr__(self, "picture", size)
        if self.exploration not in POLICIES:
            raise PromptError(f"prompt '{self.name}': exploration must be one of {', '.join(POLICIES)}")
        used = {name for _, name, _, _ in string.Formatter().parse(self.template) if name is not None}
        if unknown := used - _FIELDS:
            raise PromptError(
                f"prompt '{self.name}': unknown fields {sorted(unknown)}; known are {sorted(_FIELDS)}"
            )
        if missing := {"instruction", "frame"} - used:
            raise PromptError(f"prompt '{self.name}': the template lacks {sorted(missing)}")
        if ("history" in used) != (self.history_frames > 0):
            raise PromptError(f"prompt '{self.name}': {{history}} and history_frames > 0 belong together")
        if ("last_actions" in used) != (self.last_actions > 0):
            raise PromptError(f"prompt '{self.name}': {{last_actions}} and last_actions > 0 belong together")
        if self.history_sampling not in ("even", "latest"):
            raise PromptError(f"prompt '{self.name}': history_sampling must be 'even' or 'latest'")

    def fitted(self, options: PictureOptions) -> PictureOptions:
        """Return the options with the model's picture size, unless they set a size."""
        if self.picture is None or (options.width and options.height):
            return options
        return replace(options, width=self.picture[0], height=self.picture[1])

    def ordered(self, order: str) -> PromptSpec:
        """
        Return the spec for an answer order: "as_trained" or "action_first".

        Raises PromptError if the model supports only the order it was trained on.
        """
        if order == "as_trained":
            return self
        if not self.action_first:
            raise PromptError(
                f"a model of prompt '{self.name}' answers in the order it was trained on; "
                "answer_order must be as_trained"
            )
        return replace(self, template=self.action_first, action_first="")

    @classmethod
    def preset(cls, name: str) -> PromptSpec:
        """Return a preset by name."""
        try:
            return PRESETS[name]
        except KeyError:
            raise PromptError(f"there is no prompt preset '{name}'; known are {', '.join(PRESETS)}") from None

    @classmethod
    def from_model_folder(cls, path: str | Path, fallback: str = "tiny_nav") -> PromptSpec:
        """Return the spec saved in the model's folder, or the fallback preset."""
        file = Path(path) / SPEC_FILE
        if not file.is_file():
            return cls.preset(fallback)
        try:
            said: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
            known = {field.name for field in fields(cls)}
            if unknown := set(said) - known:
                raise PromptError(f"{file}: unknown settings {sorted(unknown)}; known are {sorted(known)}")
            # Models made for the former policy damped_search use the same language.
            if "exploration" in said and said["exploration"] == "damped_search":
                said = {**said, "exploration": FRONTIER_SEARCH}
            return cls(**said)
        except (ValueError, TypeError) as error:
            raise PromptError(f"{file} is not a prompt spec: {error}") from error

    def save(self, folder: str | Path) -> None:
        """Write the spec into a model's folder."""
        text = json.dumps(asdict(self), indent=1, ensure_ascii=False) + "\n"
        (Path(folder) / SPEC_FILE).write_text(text, encoding="utf-8")


_CHAT = (
    "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n"
    "<|im_start|>user\n{body}<|im_end|>\n<|im_start|>assistant\n"
)
_NAVILA = (
    "Imagine you are a robot programmed for navigation tasks. You have been given a video of "
    "historical observations {history} and current observation {frame}. Your assigned task is: "
    '"{instruction}" Analyze this series of images to decide your next action, which could be '
    "turning left or right by a specific degree, moving forward a certain distance, or stop if "
    "the task is completed."
)
_NAVILA_FRAMES_LAST = (
    "Imagine you are a robot programmed for navigation tasks. Your assigned task is: "
    '"{instruction}" Analyze the series of images that follows to decide your next action, which '
    "could be turning left or right by a specific degree, moving forward a certain distance, or "
    "stop if the task is completed. You have been given a video of historical observations "
    "{history} and current observation {frame}."
)
_PILOT = (
    "You are the pilot of a small robot. The picture shows what is in front of you: {frame} "
    "Your task: {instruction}. Your last actions: {last_actions}. Answer with two sentences. "
)
_SENTENCES = "\n".join(ACTION_SENTENCES)
_TAUGHT = (
    _PILOT + 'The first says where you see the target, or "I do not see" it. The second is exactly one '
    f"of these, nothing added:\n{_SENTENCES}"
)
_TAUGHT_ACTION_FIRST = (
    _PILOT + "The first is exactly one of these, nothing added. The second says where you see the "
    f'target, or "I do not see" it.\n{_SENTENCES}'
)
_TAUGHT_FRAMES_LAST = (
    "You are the pilot of a small robot. Your task: {instruction}. You will be shown what is in "
    'front of you. Answer with two sentences. The first says where you see the target, or "I do '
    f'not see" it. The second is exactly one of these, nothing added:\n{_SENTENCES}\n'
    "Your last actions: {last_actions}. What is in front of you now: {frame}"
)

PRESETS: dict[str, PromptSpec] = {
    spec.name: spec
    for spec in (
        # The default pair's training prompt. The instruction precedes the image, so that the image
        # tokens can attend to it; with the image first, a model this small did not learn grounding.
        # The pair's chat template renders the same text.
        PromptSpec(
            "tiny_nav",
            "<|im_start|>user\nTask: {instruction}{frame}<|im_end|>\n<|im_start|>assistant\n",
            exploration="frontier_search",
            picture=(224, 140),
        ),
        # NaVILA's own wording (8 images, missing history black); its checkpoints are fine-tuned on
        # the ten sentences.
        PromptSpec("navila", _CHAT.replace("{body}", _NAVILA), history_frames=7, pad_history=True),
        # For a published Qwen2-VL, which does not know the ten sentences.
        PromptSpec(
            "qwen2_vl",
            _CHAT.replace("{body}", _TAUGHT),
            last_actions=4,
            action_first=_CHAT.replace("{body}", _TAUGHT_ACTION_FIRST),
        ),
        # The two above with the repeated text in front, so that both sides can reuse its KV cache.
        # No checkpoint was trained on these.
        PromptSpec(
            "navila_frames_last",
            _CHAT.replace("{body}", _NAVILA_FRAMES_LAST),
            history_frames=7,
            pad_history=True,
        ),
        PromptSpec("qwen2_vl_frames_last", _CHAT.replace("{body}", _TAUGHT_FRAMES_LAST), last_actions=4),
    )
}


def clean_instruction(text: str, max_chars: int = MAX_INSTRUCTION_CHARS) -> str:
    """
    Return the cleaned instruction on one line.

    Final punctuation is removed and special token markers are broken up. Raises InstructionError
    if nothing is left or the text is longer than `max_chars`.
    """
    if len(text) > max_chars:
        raise InstructionError(f"instruction of {len(text)} characters refused: the limit is {max_chars}")
    printable = "".join(c if c.isprintable() else " " for c in text)
    words = " ".join(printable.replace("<|", "< |").replace("|>", "| >").split())
    words = words.rstrip(" .!?")
    if not words:
        raise InstructionError(
            "empty instruction refused: publish a sentence such as 'find the silver bottle'"
        )
    return words


def pick_history(past: int, wanted: int, sampling: str = "even") -> tuple[int, ...]:
    """
    Choose at most `wanted` of `past` earlier frames for the prompt.

    Frame 0 is the oldest; the indices are returned oldest first.
    """
    if past <= wanted:
        return tuple(range(past))
    if sampling == "latest":
        return tuple(range(past - wanted, past))
    return tuple(i * past // wanted for i in range(wanted))


def render(spec: PromptSpec, instruction: str, last_actions: Sequence[Action] = (), history: int = 0) -> str:
    """
    Return the prompt as text; history: number of frames before the current one.

    Raises InstructionError for an invalid instruction.
    """
    count = spec.last_actions
    recent = list(last_actions)[-count:] if count else []
    values = {
        "instruction": clean_instruction(instruction, spec.max_instruction_chars),
        "last_actions": spec.action_separator.join(a.short for a in recent) or spec.no_actions,
        "history": FRAME * history,
        "frame": FRAME,
    }
    return spec.template.format_map(values)


def build_prompt(
    spec: PromptSpec,
    tokenizer: Any,
    instruction: str,
    frames: Sequence[bytes],
    last_actions: Sequence[Action] = (),
) -> Prompt:
    """
    Return the `specdec` prompt of one decision.

    frames: encoded images, oldest first, the current one last, as returned by `choose_frames`.
    tokenizer: a Hugging Face tokenizer with the vision tokens.
    Raises InstructionError, and PromptError if the tokenizer has no image token.
    """
    from specdec.models import Prompt

    for special in sorted(tokenizer.all_special_tokens, key=len, reverse=True):
        instruction = instruction.replace(special, " ")
    text = render(spec, instruction, last_actions, len(frames) - 1)
    ids = tuple(int(i) for i in tokenizer(text, add_special_tokens=False)["input_ids"])
    pad = tokenizer.convert_tokens_to_ids(IMAGE_PAD)
    if ids.count(pad) != len(frames):
        raise PromptError(
            f"the model's tokenizer does not know {IMAGE_PAD}: is this a vision-language model?"
        )
    return Prompt(ids=ids, images=tuple(frames))


def choose_frames(
    spec: PromptSpec, past: Sequence[bytes], current: bytes, black: bytes | None = None
) -> tuple[bytes, ...]:
    """
    Return the frames of a prompt, oldest first: the history by the spec, then the current one.

    black: an encoded black frame, required if the spec pads missing history.
    """
    history = [past[i] for i in pick_history(len(past), spec.history_frames, spec.history_sampling)]
    if spec.pad_history and (missing := spec.history_frames - len(history)) > 0:
        if black is None:
            raise PromptError(f"prompt '{spec.name}' pads missing history: a black frame is needed")
        history = [black] * missing + history
    return (*history, current)
