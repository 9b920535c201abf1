# SPDX-License-Identifier: Apache-2.0
"""Oracle contestants: Hugging Face's own `generate` with the same pair, on the same machine, in one process, no link.

They give reference answers and the speed of ordinary decoding. transformers is imported only if an oracle runs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from transformers import GenerationConfig
from transformers.generation.streamers import BaseStreamer
from transformers.utils import logging as hf_logging

from specdec.edge.stats import RoundStats
from specdec.models import LoadedModel, Prompt
from specdec.options import GenerationOptions
from specnav.bench.data.latency import forward_ms
from specnav.bench.records.bench import MeasuredAnswer
from specnav.results.errors import EvaluationError, one_line


class _Arrivals(BaseStreamer):
    """Records when transformers emits tokens, and how many at a time. The prompt comes first and is ignored."""

    def __init__(self, drafted: Callable[[], int]) -> None:
        self._drafted = drafted
        self._before = 0
        self._prompt_seen = False
        self.first_s: float | None = None
        self.chunks: list[tuple[int, int]] = []  # (tokens emitted, tokens drafted for them)

    def put(self, value: torch.Tensor) -> None:
        """Receive the prompt or some tokens."""
        if not self._prompt_seen:
            self._prompt_seen = True
            return
        if self.first_s is None:
            self.first_s = time.perf_counter()
        drafted = self._drafted()
        self.chunks.append((value.numel(), drafted - self._before))
        self._before = drafted

    def end(self) -> None:
        """The answer is over."""


class _PacedForwards:
    """Counts a transformers model's forwards and paces each to at least `minimum_ms`, which may depend on its rows."""

    def __init__(self, minimum_ms: float) -> None:
        self._minimum_ms = minimum_ms
        self._until_s = 0.0
        self.count = 0

    @contextmanager
    def watching(self, model: Any) -> Iterator[None]:
        """Count and pace the forwards of `model` during the block."""

        def before(module: torch.nn.Module, inputs: Any, named: Any) -> None:
            rows = named["input_ids"].shape[-1]
            self._until_s = time.perf_counter() + forward_ms(self._minimum_ms, rows) / 1e3

        def after(module: torch.nn.Module, inputs: Any, output: Any) -> None:
            self.count += 1
            time.sleep(max(0.0, self._until_s - time.perf_counter()))

        hooks = [model.register_forward_pre_hook(before, with_kwargs=True), model.register_forward_hook(after)]
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()


@contextmanager
def _quiet_library() -> Iterator[None]:
    """Silence warnings about arguments that transformers' assisted generation itself passes on."""
    before = hf_logging.get_verbosity()
    hf_logging.set_verbosity_error()
    try:
        yield
    finally:
        hf_logging.set_verbosity(before)


@contextmanager
def _without_own_settings(model: Any) -> Iterator[None]:
    """Leave out a checkpoint's generation settings, which may forbid or punish tokens: a run has its own."""
    before, model.generation_config = model.generation_config, GenerationConfig()
    try:
        yield
    finally:
        model.generation_config = before


class OracleContestant:
    """transformers' own generate, with or without an assistant model."""

    def __init__(
        self,
        name: str,
        target: LoadedModel,
        draft: LoadedModel | None,
        gamma: int,
        verify_ms: float = 0.0,
        draft_ms: float = 0.0,
    ) -> None:
        """draft: the assistant; None decodes with the target alone. verify_ms, draft_ms: paced times of forwards."""
        self.name = name
        self._target, self._draft, self._gamma = target, draft, gamma
        self._verify, self._drafting = _PacedForwards(verify_ms), _PacedForwards(draft_ms)
        for model in (target, draft):
            if model is not None:
                _ = model.hf_model  # loaded now, not while the first answer is timed

    def answer(self, prompt: Prompt, options: GenerationOptions) -> MeasuredAnswer:
        """Answer in this process. Raises EvaluationError if transformers rejects the pair."""
        target = self._target
        ids = torch.tensor([prompt.ids], device=target.device)
        self._drafting.count = 0
        arrivals = _Arrivals(lambda: self._drafting.count)
        settings = self._settings(options)
        if options.temperature > 0:
            torch.manual_seed(options.seed)
        started = time.perf_counter()
        try:
            with torch.inference_mode(), _quiet_library(), ExitStack() as hooks:
                hooks.enter_context(_without_own_settings(target.hf_model))
                hooks.enter_context(self._verify.watching(target.hf_model))
                if self._draft is not None:
                    hooks.enter_context(self._drafting.watching(self._draft.hf_model))
                full = target.hf_model.generate(
                    ids, attention_mask=torch.ones_like(ids), streamer=arrivals, **settings
                )
        except (ValueError, RuntimeError) as error:
            reason = one_line(error)[:200]
            raise EvaluationError(f"{self.name} refuses this pair ({reason}); leave it out") from error
        ended = time.perf_counter()
        answer = full[0, ids.shape[1] :].tolist()
        eos = next((i for i, token in enumerate(answer) if token in target.eos_token_ids), None)
        drafted = self._draft is not None
        # Alone, the prompt's forward gives the first token; with an assistant it also judges the first draft.
        chunks = arrivals.chunks if drafted else arrivals.chunks[1:]
        return MeasuredAnswer(
            ids=answer[:eos],
            finish="length" if eos is None else "eos",
            wall_ms=(ended - started) * 1e3,
            ttft_ms=((arrivals.first_s or ended) - started) * 1e3,
            rounds=[
                RoundStats(tried, max(0, got - 1) if drafted else 0, 0, 0, 0.0, 0.0, 0.0, got)
                for got, tried in chunks
            ],
            draft_forwards=max(0, self._drafting.count - 1) if drafted else None,
            verify_forwards=len(chunks),
            has_link=False,
        )

    def _settings(self, options: GenerationOptions) -> dict[str, Any]:
        """Arguments of `generate`: the run's sampling."""
        target = self._target
        padding = range(target.vocab_size, target.hf_model.get_input_embeddings().weight.shape[0])
        settings: dict[str, Any] = {
            "max_new_tokens": options.max_new_tokens,
            "do_sample": options.temperature > 0,
            "repetition_penalty": options.repetition_penalty,
            "eos_token_id": sorted(target.eos_token_ids) or None,
            "pad_token_id": min(target.eos_token_ids, default=0),
            "temperature": options.temperature or None,
            "top_k": options.top_k if options.temperature else None,
            "top_p": options.top_p if options.temperature else None,
            "min_p": options.min_p or None if options.temperature else None,
            "suppress_tokens": list(padding) or None,
        }
        if self._draft is not None:
            assistant = self._draft.hf_model
            # A chain like ours: always gamma tokens, also where the draft is unsure.
            assistant.generation_config.num_assistant_tokens = self._gamma
            assistant.generation_config.num_assistant_tokens_schedule = "constant"
            assistant.generation_config.assistant_confidence_threshold = 0.0
            settings["assistant_model"] = assistant
        return settings
