# SPDX-License-Identifier: Apache-2.0
"""The objective of exits: the final exit's distribution at the same position, from hidden states of the frozen target.

The target runs in its own number type, through the code that serves answers; only the adapters have gradients.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from specdec.models import LoadedModel, load_model
from specdec.store import SharedStore
from specdec.verifying.exits import ExitAdapters
from specnav.recipes.errors import TrainingError
from specnav.recipes.samples import ExitSample, load_samples
from specnav.recipes.some_tokens import some_tokens

HARD_SHARE = 0.3
"""Share of the final exit's likeliest token in the loss, because greedy hints must match it."""
LIKELY = 8
"""How many of the final exit's likeliest tokens at each position the loss always covers."""
KEPT_BYTES = 2 << 30
"""Bytes of hidden states in the cache."""
LARGE = 1 << 26
"""Logits per step, over all exits, above which they are recomputed in the backward pass instead of stored."""


@dataclass(frozen=True)
class ExitTaskSpec:
    """All inputs that a worker process needs. rows: most rows of a sample that are used in one step.

    tokens: how many tokens of the vocabulary the loss covers in each batch, including the final exit's likeliest ones;
    0: all.
    """

    target: str
    samples: Path
    layers: tuple[int, ...]
    width: int
    rows: int
    tokens: int = 0


class ExitTask:
    """The adapters and their loss, for the training loop."""

    def __init__(self, spec: ExitTaskSpec, device: str) -> None:
        self.spec = spec
        self.target = load_model(spec.target, device=device)
        self.samples = load_samples(spec.samples)
        self.model = ExitAdapters(len(spec.layers), self.target.runner.hidden_size, spec.width)
        self._frozen = weights_digest(self.target)
        self._seen = SharedStore(KEPT_BYTES)
        self._head: tuple[Tensor, Tensor | None] | None = None

    def batch(self, generator: torch.Generator, size: int) -> tuple[Tensor, ...]:
        """Draw one batch: hidden states [exits, rows, hidden_size] after the exits' layers, [rows, hidden_size] after
        the last. If the loss covers only some tokens, also these, int64 [tokens], and the final exit's
        log-probabilities [rows, tokens].
        """
        picked = torch.randint(len(self.samples), (size,), generator=generator).tolist()
        parts = []
        for index in picked:
            hidden, last = self._rows(index)
            chosen = torch.randperm(len(last), generator=generator)[: self.spec.rows].to(last.device)
            parts.append((hidden[:, chosen], last[chosen]))
        hidden = torch.cat([part for part, _ in parts], dim=1)
        last = torch.cat([part for _, part in parts])
        if not 0 < self.spec.tokens < self.target.vocab_size:
            return hidden, last
        with torch.no_grad():
            taught = self.target.runner.logits(last)
        likely = taught.topk(LIKELY, -1).indices.cpu()
        among, _, _ = some_tokens(likely, likely, self.spec.tokens, self.target.vocab_size, generator)
        return hidden, last, among, taught[:, among.to(taught.device)].log_softmax(-1)

    def _rows(self, index: int) -> tuple[Tensor, Tensor]:
        """Hidden states of a sample; they never change, so on a CPU they are cached as far as there is room."""
        found: tuple[Tensor, Tensor] | None = self._seen.get(index)
        if found is None:
            found = all_rows(self.samples[index], self.target, self.spec.layers)
            if self.target.device.type == "cpu":
                self._seen.put(index, found, sum(part.nbytes for part in found))
        return found

    def loss(
        self, hidden: Tensor, last: Tensor, among: Tensor | None = None, known: Tensor | None = None
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Mean distance of the exits from the final exit, and their agreement, the share of equal likeliest tokens."""
        if among is not None and known is not None:
            log_p, likeliest = known, known.argmax(-1)
            self._head = self.target.runner.head_rows(among)
        else:
            self._head = None
            with torch.no_grad(), torch.autocast(hidden.device.type, enabled=False):
                taught = self.target.runner.logits(last)
                log_p, likeliest = taught.log_softmax(-1), taught.argmax(-1)
        large = hidden.shape[0] * log_p.numel() > LARGE
        losses, said = [], {}
        for slot, layer in enumerate(self.spec.layers):
            arguments = (slot, hidden[slot], log_p, likeliest)
            one = checkpoint(self._one, *arguments, use_reentrant=False) if large else self._one(*arguments)
            losses.append(one[0])
            said[f"exit_{layer}"] = one[1]
        total = torch.stack(losses).mean()
        return total, {"loss": total.detach(), "agrees": torch.stack(list(said.values())).mean()} | said

    def at_end(self) -> None:
        """Raise TrainingError if any bit of the target's weights has changed."""
        if weights_digest(self.target) != self._frozen:
            raise TrainingError(
                f"the weights of {self.spec.target} changed while its exits were trained: report this"
            )

    def _one(self, slot: int, hidden: Tensor, log_p: Tensor, likeliest: Tensor) -> tuple[Tensor, Tensor]:
        adapted = self.model.one(slot, hidden.to(self.model.down.dtype))
        log_q = self._logits(adapted.to(self.target.dtype)).log_softmax(-1)
        apart = F.kl_div(log_q, log_p, reduction="none", log_target=True).sum(-1).mean()
        hard = F.nll_loss(log_q, likeliest)
        agrees = (log_q.argmax(-1) == likeliest).float().mean()
        return (1 - HARD_SHARE) * apart + HARD_SHARE * hard, agrees.detach()


    def _logits(self, adapted: Tensor) -> Tensor:
        """Logits float32 [rows, tokens] of the tokens that the loss covers."""
        if self._head is None:
            return self.target.runner.logits(adapted)
        weight, bias = self._head
        return F.linear(F.rms_norm(adapted, (adapted.shape[-1],), eps=self.target.runner.eps), weight, bias).float()


def hidden_rows(model: LoadedModel, encoded, rows: Tensor, layers: Sequence[int]) -> tuple[Tensor, Tensor]:
    """Hidden states of some rows of a text: ([layers, rows, hidden_size] after `layers`, those after the last)."""
    seen: dict[int, Tensor] = {}
    last = model.runner.layer_count - 1
    wanted = frozenset((*layers, last))
    index = rows.to(model.device)

    def observer(layer: int, hidden: Tensor) -> None:
        if layer in wanted:
            seen[layer] = hidden[index]

    model.new_session().prefill(encoded, observer=observer)
    # Copies made outside the session's inference mode, so that gradients can pass through their users.
    return torch.stack([seen[layer] for layer in layers]), seen[last].clone()


def weights_digest(model: LoadedModel) -> str:
    """A hash of every bit of the model's parameters and buffers."""
    digest = hashlib.sha256()
    for tensor in chain(model.network.parameters(), model.network.buffers()):
        digest.update(tensor.detach().contiguous().view(-1).view(torch.uint8).cpu().numpy().tobytes())
    return digest.hexdigest()


def all_rows(sample: ExitSample, model: LoadedModel, layers: Sequence[int]) -> tuple[Tensor, Tensor]:
    """`hidden_rows` for every learnt token of a sample."""
    encoded, rows = sample.encode(model)
    return hidden_rows(model, encoded, torch.arange(rows.start, rows.stop), layers)
