"""Picking tokens where both sides must agree: greedy at temperature 0, shared noise above it.

A Chooser is a pure function of (options, logits, position); equal inputs give equal tokens wherever it runs.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from specdec.options import GenerationOptions
from specdec.sampling.noise import gumbel_noise, noisy_argmax
from specdec.sampling.processors import LARGE, cut_scores, cut_to_few, process_logits


class GreedyPicks:
    """Greedy picks of all rows of a forward, made on the device beside the logits, and read from it once.

    found: int64 [2, rows]: the picks, and whether a row is of numbers.
    """

    def __init__(self, found: Tensor) -> None:
        self._found = found
        self._read: list[list[int]] | None = None

    def attach(self, logits: Tensor, start: int) -> None:
        """Let `choose` and `is_sound` know that these logits are those of the rows from `start` on."""
        logits.greedy_picks = (self, start)  # type: ignore[attr-defined]

    def read(self) -> list[list[int]]:
        """Picks and soundness of all rows; waits for the device the first time."""
        if self._read is None:
            self._read = self._found.tolist()
        return self._read


def is_sound(logits: Tensor) -> bool | None:
    """Whether the last row is of numbers, where a forward has found that out (NaNs propagate); None: it has not."""
    picks: tuple[GreedyPicks, int] | None = getattr(logits, "greedy_picks", None)
    return None if picks is None else bool(picks[0].read()[1][picks[1] + logits.shape[0] - 1])


def chances_of(logits: Tensor, tokens: Tensor, temperature: float) -> Tensor:
    """The model's probability of one token a row, float32 [rows] where the logits are; before anything is cut.

    logits: float [rows, vocab]. tokens: int64 [rows]. At temperature 0 as at 1: greedy decoding has no distribution.
    """
    scores = logits if temperature in (0.0, 1.0) else logits / temperature
    return (scores.gather(1, tokens[:, None])[:, 0] - scores.logsumexp(-1)).exp()


@dataclass(frozen=True)
class Chooser:
    """Picks one token a row. Deterministic: the randomness of sampling is all in options.seed."""

    options: GenerationOptions

    def choose(self, logits: Tensor, first_position: int) -> list[int]:
        """logits float [rows, vocab] of the answer positions first_position, +1, ... -> one id a row."""
        picks: tuple[GreedyPicks, int] | None = getattr(logits, "greedy_picks", None)
        if picks is not None and self.options.temperature == 0.0:
            return picks[0].read()[0][picks[1] : picks[1] + logits.shape[0]]
        return self.pick(logits, first_position).tolist()

    def choose_at(self, logits: Tensor, positions: Tensor) -> list[int]:
        """The same for any answer positions int64 [rows], as the nodes of a tree need it."""
        return self.choose(logits, 0) if self.options.temperature == 0.0 else self.pick_at(logits, positions).tolist()

    def pick(self, logits: Tensor, first_position: int) -> Tensor:
        """Like `choose`, but the ids int64 [rows] stay on the device: nobody waits for them."""
        if self.options.temperature == 0.0:
            return logits.argmax(dim=-1)
        positions = torch.arange(first_position, first_position + logits.shape[0], device=logits.device)
        return self.pick_at(logits, positions)

    def pick_at(self, logits: Tensor, positions: Tensor) -> Tensor:
        """Like `choose_at`, the ids int64 [rows] on the device."""
        if self.options.temperature == 0.0:
            return logits.argmax(dim=-1)
        if logits.device.type == "cpu" and logits.shape[-1] >= LARGE:  # row by row it stays in the processor's cache
            return torch.cat([self._pick_row(row, at) for row, at in zip(logits, positions[:, None], strict=True)])
        scores = cut_scores(logits, self.options)
        k = self.options.top_k
        if 0 < k < scores.shape[-1] // 4 and scores.device.type == "cpu":  # elsewhere asking costs more than it saves
            # Only the support needs noise; ties at the k-th score may make it larger than k, hence the margin
            # test.
            best, tokens = torch.topk(scores, k + 1, dim=-1)
            if bool(torch.isinf(best[:, -1]).all()):
                noisy = best.double() + gumbel_noise(self.options.seed, positions[:, None], tokens)
                return tokens.gather(1, noisy.argmax(dim=-1, keepdim=True))[:, 0]
        return noisy_argmax(scores, self.options.seed, positions)

    def _pick_row(self, row: Tensor, position: Tensor) -> Tensor:
        """The same of one large row [vocab] on a CPU; position and what is picked int64 [1]."""
        few = cut_to_few(row, self.options)
        if few is None:
            return noisy_argmax(cut_scores(row[None], self.options), self.options.seed, position)
        tokens, scores = few
        noisy = scores.double() + gumbel_noise(self.options.seed, position, tokens)
        return tokens[noisy.argmax()][None]

    def log_scores(self, logits: Tensor, positions: Tensor) -> Tensor:
        """How likely each token is to be picked, as log-probabilities float [rows, vocab] to rank candidates
        by.

        Greedy: the model's own log-probabilities. With shared noise the noise is known, so they are taken
        after it.
        """
        if self.options.temperature == 0.0:
            return torch.log_softmax(logits, dim=-1)
        scores = process_logits(logits, self.options)
        tokens = torch.arange(scores.shape[-1], device=scores.device)
        noise = gumbel_noise(self.options.seed, positions[:, None], tokens[None, :])
        return torch.log_softmax(scores + noise.to(scores.dtype), dim=-1)
