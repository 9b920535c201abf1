# SPDX-License-Identifier: Apache-2.0
"""A GGUF file as a LoadedModel on llama.cpp: a draft model, or a verifier's target.

Pictures are encoded by a vision tower on torch; its output replaces embeddings in llama.cpp's input.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from specdec.errors import ModelError
from specdec.models.digest import DIGEST_BYTES, weights_digest
from specdec.models.gguf.binding import LlamaModel
from specdec.models.gguf.decoder import LlamaDecoder, Sizes
from specdec.models.gguf.files import check_file
from specdec.models.gguf.options import KV_BYTES, SHARED_TOKENS, GgufOptions
from specdec.models.gguf.session import PICTURE_ROW, GgufRunner, GgufSession
from specdec.models.gguf.tower import GgufTower, load_tower
from specdec.models.gguf.vocabulary import GgufVocabulary, ends_of, tokenizer_for
from specdec.models.loaded import LoadedModel
from specdec.models.prompt import EncodedPrompt
from specdec.models.threads import check_threads

SEEING = ("qwen2vl",)
"""llama.cpp's architecture names of models that take pictures in the way of Qwen2-VL and Qwen2.5-VL."""
_SMALL = 20_000_000
"""Below this many parameters, several threads would spend more time waiting for one another than computing."""


class GgufModel(LoadedModel):
    """A model on llama.cpp. Created by `load_gguf`."""

    def __init__(
        self, model: LlamaModel, decoder: LlamaDecoder, tokenizer: Any, path: str, vocabulary: GgufVocabulary,
        kv_itemsize: float, tower: GgufTower | None = None,
    ) -> None:  # fmt: skip
        """tower: encodes pictures; None: the model takes none. kv_itemsize: bytes per number in the KV cache."""
        self._llama = model
        self._decoder = decoder
        self._vocabulary = vocabulary
        self._tower = tower
        self.network = None if tower is None else tower.network
        self.family = None
        self.deterministic = False
        self._load_hf_model = self._refuse_library
        runner: Any = GgufRunner(model, decoder, vocabulary.size, kv_itemsize)
        preparer = None if tower is None else tower.preparer
        pad_id = None if tower is None else tower.image_token_id
        self._stand_on(runner, tokenizer, path, ends_of(model, Path(path)), preparer, pad_id)
        if model.metadata("general.architecture") in SEEING:
            self._no_pictures = (
                "put its vision tower beside it, an mmproj-….gguf file (or gguf option mmproj)"
            )

    def _refuse_library(self) -> Any:
        raise ModelError(f"{self.path} runs on llama.cpp, which has no transformers model: give a folder")

    @property
    def cache_bytes(self) -> int:  # type: ignore[override]
        """As LoadedModel.cache_bytes."""
        return self._decoder.cells * self.runner.kv_bytes_a_token

    @property
    def threads(self) -> int:
        """CPU threads of a forward pass."""
        return self._decoder.threads

    @cached_property
    def parameter_count(self) -> int:
        """Number of parameters, vision tower included."""
        tower = 0 if self._tower is None else sum(one.numel() for one in self._tower.network.parameters())
        return self._llama.parameters + tower

    @cached_property
    def weights_digest(self) -> bytes:
        """As LoadedModel.weights_digest. It includes the number type of keys and values, which affects answers."""
        parts = [self._llama.digest, f"{self.runner.kv_bytes_a_token}".encode()]
        if self._tower is not None:
            parts.append(weights_digest(self._tower.network))
        return hashlib.sha256(b" ".join(parts)).digest()[:DIGEST_BYTES]

    @property
    def tokens(self) -> Mapping[int, str]:
        """As LoadedModel.tokens."""
        return self._vocabulary.tokens

    def new_session(self) -> GgufSession:
        """An empty session; any number of them may be interleaved on this model."""
        return GgufSession(self)

    def embed_prompt(self, encoded: EncodedPrompt) -> Tensor:
        """The input rows of a prompt: ids [n, 1], or with pictures float32 [n, 1 + width] (see `GgufRunner`)."""
        features = encoded.features
        if encoded.pixel_values is not None and encoded.grids is not None:
            features = self._features(encoded.pixel_values, encoded.grids)
        if features is None:
            return encoded.ids[:, None]
        hidden = torch.zeros(encoded.ids.shape[0], 1 + features.shape[1])
        hidden[:, 0] = encoded.ids
        pictures = encoded.ids == self.image_pad_id
        hidden[pictures, 0] = PICTURE_ROW
        hidden[pictures, 1:] = features.to("cpu", torch.float32)
        return hidden

    def _features(self, pixel_values: Tensor, grids: Tensor) -> Tensor:
        """As LoadedModel._features: [tokens of all pictures, width]."""
        assert self._tower is not None
        place = next(self._tower.network.parameters()).device
        found = self._tower.network.get_image_features(pixel_values.to(place), image_grid_thw=grids.to(place))
        return torch.cat(list(found.pooler_output))

    def _placeholder_ids(self) -> frozenset[int]:
        """Ids that stand for pictures, which must never be drafted."""
        if self._tower is None:
            return frozenset()
        return frozenset(i for i in self._tower.placeholder_ids if 0 <= i < self.vocab_size)


Fit = Callable[[LlamaModel], tuple[int, Sizes]]
"""Computes the context's tokens and sizes from the loaded model."""


def load_gguf(
    path: Path, options: GgufOptions | None = None, pixels: int = 0, fit: Fit | None = None
) -> GgufModel:
    """Load a GGUF file.

    Args:
        path: The file.
        options: None: the defaults.
        pixels: As in `load_model`.
        fit: For a verifier's target: computes the size of its context. The weights are then copied into memory, because
            they must never change. None: a draft model.

    Raises:
        ModelError: One line, if the file or its vision tower cannot be used, or llama.cpp is not installed.
        OptionsError: More threads than this machine has CPU cores.
    """
    options = options or GgufOptions()
    check_threads(options.threads)
    check_file(path)
    model = LlamaModel(path, options.gpu_layers, own_copy=fit is not None)
    vocabulary = GgufVocabulary(model.tokens(), model.rows)
    tokenizer = tokenizer_for(model, path, vocabulary)
    mmproj = Path(options.mmproj) if options.mmproj else None
    sees = model.metadata("general.architecture") in SEEING
    tower = load_tower(path, mmproj, model.width, pixels) if sees or mmproj else None
    tokens, sizes = (options.context or SHARED_TOKENS, None) if fit is None else fit(model)
    threads = options.threads or (1 if model.parameters < _SMALL else torch.get_num_threads())
    decoder = LlamaDecoder(model, options, threads, tokens, sizes)
    return GgufModel(model, decoder, tokenizer, str(path), vocabulary, KV_BYTES[options.kv], tower)


def load_gguf_tokenizer(path: Path) -> Any:
    """Load only the tokenizer of a GGUF file. Raises ModelError."""
    check_file(path)
    model = LlamaModel(path, vocabulary_only=True)
    return tokenizer_for(model, path, GgufVocabulary(model.tokens(), model.rows))
