# SPDX-License-Identifier: Apache-2.0
"""Early exits on a loaded model: hidden states after some layers -> logits over the vocabulary or over a shortlist.

*Shortlist*: some token ids with their rows of the LM head, selected once. With it an exit costs a fraction of a full
head.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from specdec.errors import ModelError
from specdec.models.loaded import LoadedModel
from specdec.verifying.exits.adapters import EPS, ExitAdapters, adapt
from specdec.verifying.exits.layers import check_layers


@dataclass(frozen=True)
class Shortlist:
    """Part of an LM head, with the final norm's weight folded in.

    ids: int64 [n]. weight: [n, hidden_size]. bias: [n] or None.
    """

    ids: Tensor
    weight: Tensor
    bias: Tensor | None


class Exits:
    """The exits of one model. Read-only after construction, so any number of sessions may share it.

    layers: the layers with an exit, ascending. adapters: one slot per exit. agreement: per layer, the share of tokens
    on which the exit agrees with the final layer, as measured after training (empty if unknown). frequent: the target's
    most frequent ids in training, most frequent first (empty if unknown).
    """

    def __init__(
        self,
        model: LoadedModel,
        adapters: ExitAdapters,
        layers: Sequence[int],
        agreement: Mapping[int, float] | None = None,
        frequent: Sequence[int] = (),
    ) -> None:
        """Moves the adapters to the model's device and number type. Raises ModelError if they do not fit the model."""
        runner = model.runner
        self.model = model
        self.layers = check_layers(layers, runner.layer_count)
        exits, _, hidden_size = adapters.down.shape
        if (exits, hidden_size) != (len(self.layers), runner.hidden_size):
            raise ModelError(
                f"{exits} adapters of hidden size {hidden_size} do not fit {len(self.layers)} layers of "
                f"{runner.hidden_size}: train them for {model.path}"
            )
        self.agreement = dict(agreement or {})
        self.frequent = tuple(frequent)
        self.adapters = adapters.to(model.device, model.dtype).eval().requires_grad_(False)
        self._slots = {layer: slot for slot, layer in enumerate(self.layers)}
        self._parts = list(zip(self.adapters.down.unbind(), self.adapters.up.unbind(), strict=True))

    @property
    def parameter_count(self) -> int:
        """Number of parameters of the adapters."""
        return sum(parameter.numel() for parameter in self.adapters.parameters())

    def pick(self, layers: Sequence[int]) -> Exits:
        """A copy with only some of the exits. Raises ModelError for a layer without an exit."""
        slots = [self._slot(layer) for layer in layers]
        picked = ExitAdapters(len(slots), self.model.runner.hidden_size, self.adapters.width, device="meta")
        weights = {name: value[slots] for name, value in self.adapters.state_dict().items()}
        picked.load_state_dict(weights, assign=True)
        agreement = {layer: share for layer, share in self.agreement.items() if layer in layers}
        return Exits(self.model, picked, layers, agreement, self.frequent)

    @torch.inference_mode()
    def shortlist(self, ids: Sequence[int]) -> Shortlist:
        """The LM head's rows of these ids. Raises ModelError for an empty list, and for ids outside the vocabulary."""
        runner = self.model.runner
        if not ids or min(ids) < 0 or max(ids) >= runner.vocab_size:
            raise ModelError(f"a shortlist takes ids from 0 to {runner.vocab_size - 1}, at least one")
        index = torch.tensor(list(ids), device=runner.device)
        weight, bias = runner.head_rows(index)
        return Shortlist(index, weight, bias)

    def logits(self, layer: int, hidden: Tensor, shortlist: Shortlist | None = None) -> Tensor:
        """hidden [rows, hidden_size] after `layer` -> float32 [rows, vocab_size], or [rows, n] of the shortlist's ids.

        Raises ModelError for a layer without an exit.
        """
        adapted = adapt(hidden, *self._parts[self._slot(layer)])
        if shortlist is None:
            return self.model.runner.logits(adapted)
        normed = F.rms_norm(adapted, (adapted.shape[-1],), eps=EPS)
        return F.linear(normed, shortlist.weight, shortlist.bias).float()

    def _slot(self, layer: int) -> int:
        if layer not in self._slots:
            raise ModelError(
                f"layer {layer} has no exit: there are exits after {', '.join(map(str, self.layers))}"
            )
        return self._slots[layer]


def best(logits: Tensor) -> tuple[Tensor, Tensor]:
    """(index of the largest logit, confidence) of float32 [..., n], each [...].

    confidence is the largest probability. With a shortlist it is too high, because the omitted tokens are not counted,
    and the index refers to the shortlist's ids.
    """
    confidence, place = logits.softmax(-1).max(-1)
    return place, confidence
