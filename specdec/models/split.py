# SPDX-License-Identifier: Apache-2.0
"""Layer split: the first layers run on the edge, the others in the cloud, with hidden states sent in between.

FrontPart runs on the edge. BackSession replaces a complete model session in the cloud; hidden states of its input are
handed in beforehand.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from specdec.errors import OptionsError, ProtocolError
from specdec.models.loaded import LoadedModel
from specdec.models.plans import Extension, hidden_together, stage
from specdec.models.prompt import EncodedPrompt, Prompt
from specdec.models.runner import LayerObserver
from specdec.models.session import ModelSession


class FrontPart:
    """The first layers of a model, for one answer."""

    def __init__(self, model: LoadedModel, layers: int = 0) -> None:
        """layers: how many; 0: a quarter. Raises OptionsError unless some layers are left for the other side."""
        self._model = model
        self.layers = layers or max(1, model.runner.layer_count // 4)
        check_front_layers(self.layers, model)
        self._session = ModelSession(model, range(self.layers))

    @torch.inference_mode()
    def prefill(self, prompt: Prompt, history: Sequence[int]) -> bytes:
        """Start with a prompt and earlier answer tokens; returns their hidden states as bytes for the wire.

        Raises ModelError for a prompt that the model cannot take.
        """
        encoded = self._model.encode(prompt)
        self._session.start(encoded)
        hidden = self._forward(self._model.embed_prompt(encoded))
        return _to_bytes(hidden) + (self.extend(history) if history else b"")

    @torch.inference_mode()
    def extend(self, ids: Sequence[int]) -> bytes:
        """Append ids; returns their hidden states as bytes for the wire."""
        runner = self._model.runner
        hidden = runner.embed(torch.tensor(list(ids), device=runner.device))
        return _to_bytes(self._forward(hidden))

    def _forward(self, hidden: Tensor) -> Tensor:
        return hidden_together([stage(Extension(self._session, hidden=hidden))])


class BackSession(ModelSession):
    """The layers after a FrontPart's, with the interface of a complete session; chains only."""

    takes_embeddings = False

    def __init__(self, model: LoadedModel, front_layers: int) -> None:
        """Raises OptionsError unless some layers are left."""
        check_front_layers(front_layers, model)
        super().__init__(model, range(front_layers, model.runner.layer_count))
        self._waiting = torch.empty(0, model.runner.hidden_size, dtype=model.dtype, device=model.device)

    def hand_in(self, data: bytes, rows: int) -> None:
        """Take hidden states of the next `rows` tokens to be fed. Raises ProtocolError for invalid data."""
        runner = self.runner
        expected = rows * runner.hidden_size * self._waiting.element_size()
        if len(data) != expected:
            raise ProtocolError(
                f"hidden states of {rows} tokens came in {len(data)} bytes instead of {expected}: "
                "load the target in the same number type on both sides"
            )
        raw = torch.frombuffer(bytearray(data), dtype=self._waiting.dtype)
        hidden = raw.view(rows, runner.hidden_size).to(runner.device)
        if not bool(torch.isfinite(hidden).all()):
            raise ProtocolError("hidden states are NaN or infinite: they were corrupted by the edge or the link")
        self._waiting = torch.cat([self._waiting, hidden])

    def prompt_input(self, encoded: EncodedPrompt) -> Tensor:
        """The hidden states that were handed in."""
        return self._handed_in(encoded.ids.shape[0])

    def extension(
        self,
        ids: Sequence[int],
        parents: Sequence[int] | None = None,
        last_only: bool = False,
        observer: LayerObserver | None = None,
    ) -> Extension:
        """As ModelSession.extension, from the hidden states that were handed in."""
        if parents is not None:
            raise ProtocolError("a layer split does not take trees: use a chain")
        hidden = self._handed_in(len(ids))
        return Extension(self, hidden=hidden, last_only=last_only, observer=observer)

    def _handed_in(self, rows: int) -> Tensor:
        if self._waiting.shape[0] < rows:
            raise ProtocolError(f"hidden states of {rows} tokens are needed, but {self._waiting.shape[0]} arrived")
        hidden, self._waiting = self._waiting[:rows], self._waiting[rows:]
        return hidden


def check_front_layers(layers: int, model: LoadedModel) -> None:
    """Raise OptionsError unless the model has more than `layers` layers and can run them separately."""
    if not model.runner.sees_layers:
        raise OptionsError(
            f"{model.name} runs on transformers' own forward pass, which cannot be split: use another method"
        )
    if not 1 <= layers < model.runner.layer_count:
        raise OptionsError(
            f"{layers} layers cannot be split off a model of {model.runner.layer_count}: "
            f"choose 1 to {model.runner.layer_count - 1}"
        )


def _to_bytes(hidden: Tensor) -> bytes:
    """Rows in order and in their own number type, so that the other side continues with identical values."""
    return hidden.contiguous().cpu().view(torch.uint8).numpy().tobytes()
