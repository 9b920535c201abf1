# SPDX-License-Identifier: Apache-2.0
"""Greedy answers of a model for a whole batch of frames, and how well a draft would have predicted them.

All prompts of a batch have equal length ("find the <colour> <kind>"), so no row needs padding and one cache serves all.
It reads the same saved folders as the robot; a test holds its answers against `specdec`'s.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, cast

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from specnav.recipes import architecture as arch
from specnav.recipes.architecture import TrainedTextShape, TrainedVisionShape
from specnav.recipes.decoder import DecoderLayer, TrainableDecoder, mrope_tables
from specnav.recipes.errors import TrainingError
from specnav.recipes.questions import ANSWER, QuestionEncoder
from specnav.recipes.tower import TrainableTower, patchify, rotate

if TYPE_CHECKING:
    from navsim.world import World
    from specnav.recipes.rollouts import EpisodeRollout


@dataclass(frozen=True)
class TrainedModel:
    """A model folder in training form."""

    tower: TrainableTower
    decoder: TrainableDecoder
    encoder: QuestionEncoder
    vocabulary: int


def load_trained(folder: Path) -> TrainedModel:
    """Read a saved model folder. Raises TrainingError when it is not one of ours."""
    from transformers import AutoTokenizer, Qwen2VLForConditionalGeneration

    try:
        loaded = Qwen2VLForConditionalGeneration.from_pretrained(
            folder, dtype=torch.float32, use_safetensors=True
        )
        tokenizer = AutoTokenizer.from_pretrained(folder)
    except (OSError, ValueError) as error:
        raise TrainingError(
            f"{folder} is not a model folder of this pair: give one that train vlm made"
        ) from error
    weights, config = loaded.state_dict(), loaded.config
    text, vision = config.text_config, config.vision_config
    shape = TrainedTextShape(
        text.num_hidden_layers,
        text.hidden_size,
        text.intermediate_size,
        text.num_attention_heads,
        text.num_key_value_heads,
    )
    tower = TrainableTower(
        TrainedVisionShape(vision.depth, vision.embed_dim, vision.num_heads, text.hidden_size)
    )
    decoder = TrainableDecoder(shape, text.hidden_size, 0, 0)
    visual = {n.removeprefix("model.visual."): v for n, v in weights.items() if n.startswith("model.visual.")}
    patches = visual.pop("patch_embed.proj.weight").sum(2)
    visual["patch_embed.weight"] = patches.reshape(patches.shape[0], -1)
    tower.load_state_dict(visual)
    prefix = "model.language_model."
    decoder.load_state_dict(
        {n.removeprefix(prefix): v for n, v in weights.items() if n.startswith(prefix)}, strict=False
    )
    return TrainedModel(tower.eval(), decoder.eval(), QuestionEncoder(tokenizer), len(tokenizer))


class ModelSpeaker:
    """Answers a round of rollouts with one model."""

    def __init__(self, model: TrainedModel, batch: int = 64) -> None:
        self.model = model
        self.batch = batch

    def answer(self, runs: Sequence[EpisodeRollout], frames: Sequence[np.ndarray], world: World) -> list[str]:
        """See rollouts.Speaker."""
        answers: list[str] = []
        for at in range(0, len(runs), self.batch):
            part = slice(at, at + self.batch)
            instructions = [run.episode.instruction for run in runs[part]]
            answers += self.say(instructions, np.stack(frames[part]))
        return answers

    def say(self, instructions: Sequence[str], frames: np.ndarray) -> list[str]:
        """Greedy answers; instructions of equal length in tokens, frames uint8 [n, 140, 224, 3]."""
        tokenizer = self.model.encoder.tokenizer
        return [
            tokenizer.decode(ids, skip_special_tokens=True)
            for ids in greedy_answers(self.model, instructions, frames)
        ]


def prompt_ids(encoder: QuestionEncoder, instruction: str) -> list[int]:
    """Expanded ids of a prompt, as `specdec` makes them from the robot's prompt."""
    return [*encoder.prefix, *encoder.encode(" " + instruction), encoder.vision_start, *encoder.suffix]


def _positions(length: int, start: int) -> Tensor:
    """m-rope positions [3, 1, length] of an unpadded prompt whose image begins at column `start`."""
    stop = start + arch.IMAGE_TOKENS
    cell = torch.arange(arch.IMAGE_TOKENS)
    image = torch.stack([torch.zeros_like(cell), cell // arch.CELLS_W, cell % arch.CELLS_W]) + start
    before = torch.arange(start).expand(3, -1)
    after = (torch.arange(length - stop) + start + max(arch.CELLS_H, arch.CELLS_W)).expand(3, -1)
    return torch.cat([before, image, after], dim=1)[:, None]


@torch.inference_mode()
def greedy_answers(model: TrainedModel, instructions: Sequence[str], frames: np.ndarray) -> list[list[int]]:
    """Ids of the greedy answers, end of turn included where it came within ANSWER + 6 tokens."""
    rows = torch.tensor([prompt_ids(model.encoder, text) for text in instructions])
    start = int((rows[0] == model.encoder.image).nonzero()[0])
    decoder, count = model.decoder, rows.shape[0]
    limit = ANSWER + 6
    positions = _positions(rows.shape[1] + limit, start)
    cos, sin = mrope_tables(positions, decoder.shape.head_dim)
    x = decoder.embed_tokens(rows)
    x[:, start : start + arch.IMAGE_TOKENS] = model.tower(
        patchify(torch.from_numpy(np.ascontiguousarray(frames)))
    )
    shape = (
        len(decoder.layers),
        2,
        count,
        decoder.shape.kv_heads,
        rows.shape[1] + limit,
        decoder.shape.head_dim,
    )
    cache = torch.empty(shape)
    past = 0
    said = torch.full((count, limit), -1)
    ended = torch.zeros(count, dtype=torch.bool)
    for step in range(limit):
        length = x.shape[1]
        x = _forward(
            decoder, x, cos[:, :, past : past + length], sin[:, :, past : past + length], cache, past
        )
        past += length
        logits = F.linear(decoder.norm(x[:, -1]), decoder.embed_tokens.weight)[:, : model.vocabulary]
        token = logits.argmax(-1)
        said[:, step] = torch.where(ended, -1, token)
        ended |= token == model.encoder.eos
        if ended.all():
            break
        x = decoder.embed_tokens(token)[:, None]
    return [[int(t) for t in row if t >= 0] for row in said]


def _forward(
    decoder: TrainableDecoder, x: Tensor, cos: Tensor, sin: Tensor, cache: Tensor, past: int
) -> Tensor:
    n, length, _ = x.shape
    heads, kv_heads, size = decoder.shape.heads, decoder.shape.kv_heads, decoder.shape.head_dim
    for index, layer in enumerate(cast(Iterable[DecoderLayer], decoder.layers)):
        attention = layer.self_attn
        h = layer.input_layernorm(x)
        query = rotate(attention.q_proj(h).view(n, length, heads, size).transpose(1, 2), cos, sin)
        key = rotate(attention.k_proj(h).view(n, length, kv_heads, size).transpose(1, 2), cos, sin)
        value = attention.v_proj(h).view(n, length, kv_heads, size).transpose(1, 2)
        cache[index, 0, :, :, past : past + length] = key
        cache[index, 1, :, :, past : past + length] = value
        keys, values = (
            cache[index, i, :, :, : past + length].repeat_interleave(heads // kv_heads, 1) for i in (0, 1)
        )
        out = F.scaled_dot_product_attention(query, keys, values, is_causal=length > 1)
        x = x + attention.o_proj(out.transpose(1, 2).reshape(n, length, -1))
        x = x + layer.mlp(layer.post_attention_layernorm(x))
    return x


@torch.inference_mode()
def teacher_forced_tokens(
    model: TrainedModel, instruction: str, frame: np.ndarray, answer: Sequence[int]
) -> list[int]:
    """The model's own greedy token at each position of a given answer (ids), all in one pass."""
    prompt = prompt_ids(model.encoder, instruction)
    ids = torch.tensor([[*prompt, *answer[:-1]]])
    start = prompt.index(model.encoder.image)
    x = model.decoder.embed_tokens(ids)
    x[:, start : start + arch.IMAGE_TOKENS] = model.tower(
        patchify(torch.from_numpy(np.ascontiguousarray(frame))[None])
    )
    cos, sin = mrope_tables(_positions(ids.shape[1], start), model.decoder.shape.head_dim)
    shape = model.decoder.shape
    cache = torch.empty((len(model.decoder.layers), 2, 1, shape.kv_heads, ids.shape[1], shape.head_dim))
    x = _forward(model.decoder, x, cos, sin, cache, 0)
    logits = F.linear(model.decoder.norm(x[0, len(prompt) - 1 :]), model.decoder.embed_tokens.weight)
    return logits[:, : model.vocabulary].argmax(-1).tolist()


def tokens_a_pass(answer: Sequence[int], drafted: Sequence[int], gamma: int) -> tuple[int, int]:
    """(tokens, target passes) of greedy chain speculation, given the draft's token at each position of the answer."""
    at = passes = 0
    while at < len(answer):
        accepted = 0
        while (
            accepted < gamma
            and at + accepted < len(answer)
            and drafted[at + accepted] == answer[at + accepted]
        ):
            accepted += 1
        at += accepted + 1
        passes += 1
    return len(answer), passes
