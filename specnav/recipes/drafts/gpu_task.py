# SPDX-License-Identifier: Apache-2.0
"""The objective of `task.py` for a GPU: everything is in the device's memory, nothing is listed on the host.

All texts are packed into rows once. The target reads each row once. Its last hidden states are kept, and also those
after the layers that the draft shares with it and does not train. The loss compares both models over the whole
vocabulary, some thousand positions at a time, so that few logits exist at once.
"""

from __future__ import annotations

import copy
import gc
import logging
from typing import Any

import torch
from torch import Tensor, nn

from specdec.errors import first_line
from specnav.recipes.drafts.config import TrainDraftConfig
from specnav.recipes.drafts.figures import checkpoint_figures
from specnav.recipes.drafts.network import DraftNetwork
from specnav.recipes.drafts.packing import pack_all, within_texts
from specnav.recipes.drafts.task import DistilSpec, DistilTask
from specnav.recipes.errors import TrainingError
from specnav.recipes.samples import fitting, load_samples

_log = logging.getLogger(__name__)
PLACES = 4096
"""Positions whose logits exist at once: 0.8 GB in float32 for a vocabulary of 49,152, several times."""
TEACHER_TOKENS = 65_536
KEPT_SHARE = 0.6
"""Share of the device's free memory for the target's hidden states."""


class _ChunkedDistance(torch.autograd.Function):
    """Loss over the whole vocabulary; the gradient with respect to the logits is computed chunkwise in the forward."""

    @staticmethod
    def forward(
        context: Any, hidden: Tensor, head: Tensor, taught: Tensor, target_head: Tensor, hard: float, reverse: float
    ) -> tuple[Tensor, Tensor, Tensor]:
        count = hidden.shape[0]
        by_hidden = torch.empty_like(hidden)
        by_head = torch.zeros_like(head, dtype=torch.float32) if context.needs_input_grad[1] else None
        sums = torch.zeros(3, device=hidden.device)
        half = target_head.dtype
        weight = head.detach().to(half)
        for at in range(0, count, PLACES):
            own = hidden[at : at + PLACES].to(half)
            log_q = (own @ weight.T).float().log_softmax(-1)
            log_p = (taught[at : at + PLACES] @ target_head.T).float().log_softmax(-1)
            p, q = log_p.exp(), log_q.exp()
            best = log_p.argmax(-1, keepdim=True)
            picked = log_q.gather(-1, best)
            sums[1] += (log_q.argmax(-1, keepdim=True) == best).sum()
            apart = log_q - log_p
            forward = -(p * apart).sum(-1)
            sums[2] += forward.sum()
            soft = 1 - hard
            by_logits = p.mul_(-soft * (1 - reverse))
            lost = soft * (1 - reverse) * forward.sum() - hard * picked.sum()
            if reverse:
                back = (q * apart).sum(-1, keepdim=True)
                lost = lost + soft * reverse * back.sum()
                by_logits.add_(q * (apart - back), alpha=soft * reverse)
            by_logits.add_(q, alpha=soft * (1 - reverse) + hard)
            by_logits.scatter_add_(-1, best, torch.full_like(picked, -hard))
            sums[0] += lost
            small = by_logits.to(half)
            by_hidden[at : at + PLACES] = (small @ weight) / count
            if by_head is not None:
                by_head.addmm_(small.T.float(), own.float(), alpha=1 / count)
            del log_q, log_p, p, q, apart, by_logits, small
        context.save_for_backward(by_hidden, *([] if by_head is None else [by_head]))
        sums /= count
        return sums[0], sums[1], sums[2]

    @staticmethod
    def backward(context: Any, loss: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        by_hidden, *by_head = context.saved_tensors
        return by_hidden * loss, by_head[0] * loss if by_head else None, None, None, None, None


def chunked_distance(
    hidden: Tensor, head: Tensor, taught: Tensor, target_head: Tensor, hard: float, reverse: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Means over positions: (loss, share of positions where both choose the same token, KL(target | draft)).

    loss = (1 - hard) * ((1 - reverse) * KL(target | draft) + reverse * KL(draft | target)) - hard * log q(the target's
    likeliest token).

    Args:
        hidden: the draft's hidden states [n, width].
        head: the draft's LM head [vocabulary, width].
        taught: the target's hidden states [n, width of the target].
        target_head: the target's LM head [vocabulary, width of the target].
        hard: share of the target's likeliest token in the loss.
        reverse: share of the reverse KL.
    """
    found: tuple[Tensor, Tensor, Tensor] = _ChunkedDistance.apply(
        hidden, head, taught, target_head, hard, reverse
    )
    return found


def trains_on_device(config: TrainDraftConfig, draft: DraftNetwork) -> bool:
    """Whether `GpuDistilTask` can replace `DistilTask`: a local target, and no texts of the draft's own."""
    return bool(config.target) and not config.on_policy and not config.tokens and draft.packs(config.length)


def distil_task(spec: DistilSpec, device: str) -> GpuDistilTask | DistilTask:
    """`GpuDistilTask` if a trial step with one row succeeds, else `DistilTask` with a warning in the log."""
    try:
        return GpuDistilTask(spec, device).tried_out(device)
    except RuntimeError as error:  # the type of all of torch's own errors
        _log.warning("training uses the slower path made for CPUs (%s)", first_line(error))
    gc.collect()  # a hook keeps the failed task alive, and its states fill the device
    return DistilTask(spec, device)


class GpuDistilTask:
    """The draft and its loss, for the training loop. A batch is a tensor of row numbers."""

    def __init__(self, spec: DistilSpec, device: str) -> None:
        self.spec = spec
        self.config = config = spec.config
        self.draft = DraftNetwork(spec.start, device, trained=True)
        self.target = DraftNetwork(config.target, device, dtype="bfloat16" if device == "cuda" else "auto")
        self.model = self.draft.module
        self.held_out = load_samples(config.samples("held-out"))
        samples = load_samples(config.samples("texts")) + load_samples(config.samples("given"))
        texts = fitting(samples, config.length)
        if not texts:
            raise TrainingError("no text is long enough to learn from: give prompts with longer answers")
        packed = pack_all(texts, config.length)
        self.ids, self.positions, self.text, self.learn = (
            part.to(device) for part in (packed.ids, packed.positions, packed.text, packed.learn)
        )
        self.frozen = self._frozen_layers()
        self._rest = _part(self.model.get_decoder(), self.frozen)
        self._behind: Tensor | None = None
        if self.frozen:
            self.target.module.get_decoder().layers[self.frozen - 1].register_forward_hook(self._note)
        rows = self._rows_that_fit(device)
        width, dtype = self.target.module.config.hidden_size, next(self.target.module.parameters()).dtype
        shape = (rows, config.length, width)
        self._taught = torch.empty(shape, dtype=dtype, device=device)
        self._begun = torch.empty(shape if self.frozen else (0,), dtype=dtype, device=device)
        self._known = torch.zeros(len(self.ids), dtype=torch.bool)
        self._order: tuple[int, Tensor] = (-1, torch.empty(0))
        self._batches = 0

    def tried_out(self, device: str) -> GpuDistilTask:
        """Compute the loss and gradients of one row, and return the unchanged task. Raises any error that occurs."""
        (row,) = self.batch(torch.Generator(), 1)
        with torch.autocast(device, dtype=torch.bfloat16):  # as in the training loop
            loss, _ = self.loss(row.to(device))
        loss.backward()
        if device == "cuda":
            torch.cuda.synchronize()
        self.model.zero_grad()
        self.goes_on(0)
        return self

    def goes_on(self, step: int) -> None:
        """Continue after `step` updates, with the rows of an uninterrupted run."""
        self._batches = step

    def batch(self, generator: torch.Generator, size: int) -> tuple[Tensor, ...]:
        """Row numbers, int64 [size]; every epoch has each row once, in its own order."""
        size = min(size, len(self.ids))
        each = len(self.ids) // size
        epoch, at = divmod(self._batches, each)
        if self._order[0] != epoch:
            self._order = (epoch, torch.randperm(len(self.ids), generator=torch.Generator().manual_seed(epoch)))
        self._batches += 1
        rows = self._order[1][at * size : (at + 1) * size]
        kept = rows < len(self._taught)
        if len(unknown := rows[kept & ~self._known[rows]]):
            together = max(1, TEACHER_TOKENS // self.config.length)
            for part in unknown.split(together):
                taught, begun = self._read(part)
                self._taught[part] = taught
                if begun is not None:
                    self._begun[part] = begun
            self._known[unknown] = True
        return (rows,)

    def loss(self, rows: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """Distance from the target's distribution over the whole vocabulary, averaged over the learnt positions."""
        device = self.ids.device
        if len(self._taught) == len(self.ids) or bool((rows < len(self._taught)).all()):
            taught, begun = self._taught[rows], self._begun[rows] if self.frozen else None
        else:
            taught, begun = self._read(rows)
        decoder = self.model.get_decoder()
        inputs = decoder.embed_tokens(self.ids[rows].long()) if begun is None else begun.float()
        out = self._rest(
            inputs_embeds=inputs,
            attention_mask=self.draft._as_mask(within_texts(self.text[rows])).to(device),
            position_ids=self.positions[rows].long(),
            use_cache=False,
        ).last_hidden_state
        learn = self.learn[rows]
        heads = (one.module.lm_head.weight[: self.draft.vocabulary] for one in (self.draft, self.target))
        own_head, target_head = heads
        total, agrees, apart = chunked_distance(
            out[learn], own_head, taught[learn], target_head.detach(), self.config.hard, self.config.reverse
        )
        return total, {
            "loss": total.detach(),
            "apart": apart.detach(),
            "agrees": agrees.detach(),
            "tokens": learn.sum().float(),
        }

    def at_checkpoint(self) -> dict[str, float]:
        """τ and agreement on the held-out texts with the current weights."""
        return checkpoint_figures(self.draft, self.held_out, self.config.gamma)

    def _frozen_layers(self) -> int:
        """Number of first layers that are the target's first and not trained; 0 if the embeddings are trained."""
        decoder = self.model.get_decoder()
        shared = self.draft.shared
        if shared is None or any(weight.requires_grad for weight in decoder.embed_tokens.parameters()):
            return 0
        origins = shared.about.layers or range(len(decoder.layers))
        for place, (layer, origin) in enumerate(zip(decoder.layers, origins, strict=True)):
            if place != origin or any(weight.requires_grad for weight in layer.parameters()):
                return place
        return 0

    def _rows_that_fit(self, device: str) -> int:
        if device != "cuda":
            return len(self.ids)
        config = self.target.module.config
        each = 2 * self.config.length * config.hidden_size * (2 if self.frozen else 1)
        return min(len(self.ids), int(KEPT_SHARE * torch.cuda.mem_get_info()[0]) // each)

    @torch.no_grad()
    def _read(self, rows: Tensor) -> tuple[Tensor, Tensor | None]:
        """Run the target on rows: (last hidden states, those after the frozen layers or None)."""
        on_device = rows.to(self.ids.device)
        out = self.target.module.get_decoder()(
            input_ids=self.ids[on_device].long(),
            position_ids=self.positions[on_device].long(),
            attention_mask=self.target._as_mask(within_texts(self.text[on_device])),
            use_cache=False,
        ).last_hidden_state
        behind, self._behind = self._behind, None
        return out, behind

    def _note(self, layer: nn.Module, given: Any, out: Any) -> None:
        self._behind = out[0] if isinstance(out, tuple) else out


def _part(decoder: Any, first: int) -> Any:
    """The decoder without its first layers, which takes hidden states as input; shares all weights."""
    part = copy.copy(decoder)
    part._modules = dict(decoder._modules)
    part.layers = nn.ModuleList(list(decoder.layers)[first:])
    return part
