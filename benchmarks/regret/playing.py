# SPDX-License-Identifier: Apache-2.0
"""Runs a method in a world: the real EdgeDecoder, its controller and its drafters, on the simulated clock."""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.regret.language import SimulatedDraft, SimulatedLanguage
from benchmarks.regret.machine import Machine
from benchmarks.regret.worlds import ROWS, SimulatedWorld
from specdec.edge.decoder import EdgeDecoder
from specdec.edge.stats import AnswerStats
from specdec.models import Prompt
from specdec.options import DecodingOptions, GenerationOptions

FIXED = ("ar", "sd", "fsd", "specedge", "picospec")
"""The fixed methods with which `auto` is compared; CLOUD is added if the cloud has a draft model, and LOOKUP if the
text repeats itself.
"""
CLOUD, LOOKUP = "cloud-sd", "ngram"


@dataclass(frozen=True)
class PlayedWorld:
    """One method in one world. edge_s: the time in which the edge computed. answers: the figures of each answer."""

    method: str
    tokens: int
    seconds: float
    edge_s: float
    answers: tuple[AnswerStats, ...]

    @property
    def tokens_per_s(self) -> float:
        """Prompts included."""
        return self.tokens / self.seconds


def methods_in(world: SimulatedWorld) -> tuple[str, ...]:
    """The fixed methods that can run in this world."""
    cloud = () if world.cloud_draft is None else (CLOUD,)
    return (*FIXED, *cloud, *((LOOKUP,) if world.fit.repeats else ()))


def language_of(world: SimulatedWorld) -> SimulatedLanguage:
    """The text of a world, the same for every method."""
    return SimulatedLanguage(world.seed, world.fit, world.tokens)


def play(
    world: SimulatedWorld,
    method: str,
    language: SimulatedLanguage,
    heard: SimulatedLanguage | None = None,
    gamma: int = DecodingOptions.gamma,
) -> PlayedWorld:
    """Decode all answers of a world with one decoder. heard: a text of the same length that the decoder answers first,
    keeping its measurements. Raises AssertionError if an answer is not the target's own.
    """
    machine, decoder = _decoder(world, method, language, gamma)
    if heard is not None:
        _, earlier = _decoder(world, method, heard, gamma)
        _answers(world, earlier, heard)
        decoder.knows_as(earlier)
    answers = _answers(world, decoder, language)
    return PlayedWorld(method, world.tokens, machine.now, machine.edge_s, answers)


def _decoder(
    world: SimulatedWorld, method: str, language: SimulatedLanguage, gamma: int
) -> tuple[Machine, EdgeDecoder]:
    machine = Machine(world, language)
    row_us = [(rows, round(1e3 * world.draft.for_rows(rows))) for rows in ROWS[:-1]] if world.told else []
    draft = SimulatedDraft(language, machine.forward, machine.prefill, row_us)
    return machine, EdgeDecoder(machine, draft, method, gamma, clock=machine)  # type: ignore[arg-type]


def _answers(
    world: SimulatedWorld, decoder: EdgeDecoder, language: SimulatedLanguage
) -> tuple[AnswerStats, ...]:
    began, answers = 0, []
    for length in world.answers:
        ids: list[int] = []
        for chunk in decoder.generate(Prompt((began, 1)), GenerationOptions(length)):
            ids += chunk
        said = language.text[began : began + length]
        assert ids == said, f"world {world.seed}: the answer from token {began} is not the target's"
        began += length
        answers.append(decoder.stats)
    return tuple(answers)
