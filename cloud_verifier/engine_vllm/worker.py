# SPDX-License-Identifier: Apache-2.0
"""Extends vLLM's worker to pick tokens as specdec does, with shared noise and our logits processors.

vLLM loads it by name. The rows of all requests are picked in one call (`picking`).
"""

from __future__ import annotations

import signal
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from vllm.v1.outputs import SamplerOutput

from cloud_verifier.engine_vllm.checks import missing_in
from cloud_verifier.engine_vllm.picking import Rules, WantedRows, accepted_and_next, pick_rows
from specdec.options import GenerationOptions

EXTRA = "specnav"
"""Key in `extra_args` under which a request carries its Rules."""


class PickingWorker:
    """Methods added to vLLM's worker; called through `collective_rpc`, because it may be another process."""

    def what_is_missing(self) -> str:
        """One line about expected fields that are missing here; "" if none."""
        return missing_in(self.model_runner)  # type: ignore[attr-defined]

    def leave_interrupts(self) -> None:
        """Ignore Ctrl-C in a worker process: the verifier handles it and ends this process with itself."""
        signal.signal(signal.SIGINT, signal.SIG_IGN)

    def pick_as_specdec(self, vocab_size: int, eos_ids: Sequence[int]) -> None:
        """Replace vLLM's samplers by ours. vocab_size: ids at or above it are padding."""
        runner: Any = self.model_runner  # type: ignore[attr-defined]
        picks = _Picks(runner, vocab_size, tuple(eos_ids))
        runner.sampler.forward = picks.plain
        runner.rejection_sampler.forward = picks.drafted


class _Picks:
    """Replaces the samplers of one model runner."""

    def __init__(self, runner: Any, vocab_size: int, eos_ids: tuple[int, ...]) -> None:
        self._runner = runner
        self._vocab_size = vocab_size
        self._eos_ids = eos_ids

    def plain(self, logits: Tensor, sampling_metadata: Any, *others: Any, **more: Any) -> Any:
        """A step without drafts. logits [requests, vocab]."""
        batch = self._runner.input_batch
        picks = self._pick(logits, [0] * min(batch.num_reqs, logits.shape[0]))
        return SamplerOutput(sampled_token_ids=picks[:, None].to(torch.int32), logprobs_tensors=None)

    def drafted(self, metadata: Any, draft_probs: Any, logits: Tensor, sampling_metadata: Any) -> Any:
        """A step with drafts: each request has consecutive rows, one more than draft tokens."""
        counts = metadata.num_draft_tokens
        picks = self._pick(logits, counts)
        kept = accepted_and_next(picks, metadata.draft_token_ids, counts)
        return SamplerOutput(sampled_token_ids=kept.to(torch.int32), logprobs_tensors=None)

    def _pick(self, logits: Tensor, counts: Sequence[int]) -> Tensor:
        batch = self._runner.input_batch
        if not batch.num_reqs or logits.shape[0] != sum(counts) + len(counts):  # a trial run of vLLM
            return logits[:, : self._vocab_size].argmax(dim=-1)
        wanted = []
        for index, count in enumerate(counts):
            params = batch_params(self._runner, batch.req_ids[index])
            known = int(batch.num_tokens_no_spec[index])
            rules = params[EXTRA] if params and EXTRA in params else _PLAIN
            answered = known - int(batch.num_prompt_tokens[index]) + rules.history
            wanted.append(
                WantedRows(
                    rules, answered, batch.token_ids_cpu[index, :known], _ids(batch, index, known, count)
                )
            )
        return pick_rows(logits[:, : self._vocab_size], wanted, self._eos_ids)


def _ids(batch: Any, index: int, known: int, count: int) -> Any:
    return batch.token_ids_cpu[index, known : known + count].astype(np.int64)


def batch_params(runner: Any, request: str) -> Any:
    """The extra arguments of a request, besides vLLM's own parameters."""
    state = runner.requests.get(request)
    return None if state is None or state.sampling_params is None else state.sampling_params.extra_args


_PLAIN = Rules.from_options(GenerationOptions())
