# SPDX-License-Identifier: Apache-2.0
"""Puts the questions to the contestants: question after question, every contestant in turn.

Going question by question, with a different contestant first each time, spreads changes in the machine's speed over all
contestants. Whenever the run ends, the answered questions are complete. Several turns form one conversation: each
contestant sees its own earlier answers.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import msgspec

from specdec.energy import Meter
from specdec.models import Prompt, chat_prompt
from specdec.options import MAX_SEED, GenerationOptions
from specnav.bench.data.questions import Question
from specnav.bench.records.bench import AnswerRecord, BenchJournal, Skipped
from specnav.bench.runner.edge import Contestant

WARM_UP_TOKENS = 8

Advance = Callable[[Question, str], None]
"""Called before each answer: the question and the contestant's name."""


def prompt_of(tokenizer: Any, question: Question, answers: Sequence[Sequence[int]]) -> Prompt:
    """The prompt of the turn that follows `answers`, the token ids of all earlier turns."""
    texts = [tokenizer.decode(list(ids), skip_special_tokens=True) for ids in answers]
    history = list(zip(question.turns, texts, strict=False))
    return chat_prompt(tokenizer, question.turns[len(texts)], history=history)


def seeded(options: GenerationOptions, question: Question) -> GenerationOptions:
    """The options with the question's own seed: options.seed plus a hash of its name."""
    name = f"{question.source}/{question.question_id}".encode()
    return replace(options, seed=(options.seed + zlib.crc32(name)) % (MAX_SEED + 1))


def split_by_length(
    questions: Sequence[Question], tokenizer: Any, context_limit: int, max_new_tokens: int
) -> tuple[list[Question], list[Skipped]]:
    """(questions whose every turn fits the context with full-length answers, all others)."""
    fitting, skipped = [], []
    for question in questions:
        longest = max(
            len(prompt_of(tokenizer, question, [[]] * turn).ids) + turn * max_new_tokens
            for turn in range(len(question.turns))
        )
        if longest + max_new_tokens <= context_limit:
            fitting.append(question)
        else:
            skipped.append(
                Skipped(
                    question.source,
                    question.question_id,
                    f"{longest} prompt and {max_new_tokens} answer tokens exceed the context of {context_limit}",
                )
            )
    return fitting, skipped


def ask_question(
    contestant: Contestant, question: Question, tokenizer: Any, options: GenerationOptions, meter: Meter
) -> list[AnswerRecord]:
    """Ask one contestant all turns of a question."""
    records: list[AnswerRecord] = []
    for turn in range(len(question.turns)):
        prompt = prompt_of(tokenizer, question, [record.ids for record in records])
        mark = meter.mark()
        measured = contestant.answer(prompt, options)
        records.append(
            AnswerRecord(
                method=contestant.name,
                source=question.source,
                question_id=question.question_id,
                turn=turn,
                prompt_tokens=len(prompt.ids),
                joules=meter.since(mark),
                digest=question.digest,
                **msgspec.structs.asdict(measured),
            )
        )
    return records


def run_questions(
    questions: Sequence[Question],
    contestants: Sequence[Contestant],
    tokenizer: Any,
    options: GenerationOptions,
    journal: BenchJournal,
    advance: Advance,
    meter: Meter | None = None,
) -> None:
    """Put every question to every contestant, except where the journal already has the answers.

    Each contestant first gives one short answer that is not counted. The seed of a question is options.seed plus a
    hash of its name. Sampled answers therefore differ between questions, agree between contestants, and do not depend
    on the other questions. meter: measures the energy of each answer; None: energy is not measured.
    """
    meter = meter or Meter([])
    waiting = [
        contestant
        for contestant in contestants
        if any(not journal.has(question, contestant.name) for question in questions)
    ]
    for contestant in waiting:
        advance(questions[0], f"{contestant.name}, warming up")
        short = replace(options, max_new_tokens=min(WARM_UP_TOKENS, options.max_new_tokens))
        contestant.answer(prompt_of(tokenizer, questions[0], []), short)
    for place, question in enumerate(questions):
        own = seeded(options, question)
        first = place % len(contestants)
        for contestant in [*contestants[first:], *contestants[:first]]:
            if not journal.has(question, contestant.name):
                advance(question, contestant.name)
                journal.add(ask_question(contestant, question, tokenizer, own, meter))
        journal.settle()
