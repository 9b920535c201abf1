# SPDX-License-Identifier: Apache-2.0
"""Lets a model answer many questions at once; its texts are then measured or used for training."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from specnav.recipes.text.corpus import CorpusPart
from specnav.recipes.text.rows import OwnTexts
from specnav.recipes.text.vocabulary import ASSISTANT, USER

BATCH = 128
TEMPERATURE = 0.8


def invent_questions(part: CorpusPart, count: int, rng: random.Random) -> list[str]:
    """Questions for a model: half are the part's own questions, half are one or two paragraphs of prose."""
    questions = []
    for index in range(count):
        if index % 2 or not part.prose:
            questions.append(rng.choice(part.talks).question)
        else:
            questions.append(" ".join(rng.sample(part.prose, min(1 + index // 2 % 2, len(part.prose)))))
    return questions


def encode_questions(tokenizer, questions: Sequence[str], longest: int) -> list[list[int]]:
    """Prompt ids of each question in the chat template; prompts are truncated to `longest` tokens."""
    opening, closing = tokenizer.convert_tokens_to_ids([USER, ASSISTANT])
    encoded = tokenizer(list(questions), add_special_tokens=False)["input_ids"]
    return [[opening, *ids[: longest - 2], closing] for ids in encoded]


@torch.inference_mode()
def speak(
    model,
    prompts: Sequence[Sequence[int]],
    new_tokens: int,
    sampled_share: float = 0.0,
    seed: int = 0,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> OwnTexts:
    """The model's answers to encoded prompts, in order; the last `sampled_share` of them are sampled, not greedy."""
    end = int(model.config.eos_token_id)
    greedy_count = len(prompts) - round(len(prompts) * sampled_share)
    longest = max(map(len, prompts))
    ids = torch.full((len(prompts), longest + new_tokens), end)
    lengths = torch.zeros(len(prompts), dtype=torch.int64)
    done = 0
    for group, sample in ((range(greedy_count), False), (range(greedy_count, len(prompts)), True)):
        order = sorted(group, key=lambda index: len(prompts[index]))
        for at in range(0, len(order), BATCH):
            chosen = order[at : at + BATCH]
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(seed + at)
                answers = _answer(model, [prompts[index] for index in chosen], new_tokens, sample, end)
            for index, answer in zip(chosen, answers, strict=True):
                text = torch.cat([torch.tensor(prompts[index]), answer.cpu()])
                ids[index, : len(text)] = text
                lengths[index] = len(text)
            done += len(chosen)
            progress(done, len(prompts))
    starts = torch.tensor([len(prompt) for prompt in prompts])
    return OwnTexts(ids, starts, lengths, torch.arange(len(prompts)) < greedy_count)


def _answer(model, prompts: list[Sequence[int]], new_tokens: int, sample: bool, end: int) -> list[Tensor]:
    """Answers of one left-padded batch, each including its end."""
    width = max(map(len, prompts))
    ids = torch.tensor(
        [[end] * (width - len(prompt)) + list(prompt) for prompt in prompts], device=model.device
    )
    mask = torch.tensor(
        [[0] * (width - len(prompt)) + [1] * len(prompt) for prompt in prompts], device=model.device
    )
    how = {"do_sample": True, "temperature": TEMPERATURE, "top_k": 0} if sample else {"do_sample": False}
    out = model.generate(ids, attention_mask=mask, max_new_tokens=new_tokens, **how)[:, width:]
    ended = out == end
    stops = torch.where(ended.any(1), ended.int().argmax(1) + 1, out.shape[1])
    return [answer[:stop] for answer, stop in zip(out, stops.tolist(), strict=True)]
