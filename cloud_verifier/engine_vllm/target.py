# SPDX-License-Identifier: Apache-2.0
"""What we know about vLLM's target without its weights: tokenizer, context length and picture sizes."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

from specdec.errors import ModelError
from specdec.models.digest import files_digest
from specdec.models.families import FAMILIES
from specdec.models.images import ImagePreparer
from specdec.models.library.generic import context_limit_of
from specdec.models.loaded import LoadedModel, real_vocabulary_size
from specdec.models.loading import eos_ids, load_tokenizer, read_config


class VllmTarget(LoadedModel):
    """A target that runs on vLLM: it checks prompts and prepares pictures, and opens no sessions itself."""

    def __init__(self, path: str, pixels: int = 0) -> None:
        """path: a Hugging Face folder or hub id. pixels: as in `load_model`. Raises ModelError."""
        config = read_config(path)
        tokenizer = load_tokenizer(path)
        text = config.get_text_config()
        told = SimpleNamespace(config=config, generation_config=_generation_config(path))
        self.network = told
        self.family = FAMILIES.get(config.model_type)
        self.deterministic = False
        self._load_hf_model = self._refuse_library
        sees = self.family is not None and self.family.vision
        preparer = ImagePreparer.from_folder(path, config.vision_config, pixels) if sees else None
        runner: Any = SimpleNamespace(
            vocab_size=min(real_vocabulary_size(tokenizer), text.vocab_size),
            context_limit=context_limit_of(text),
            device=torch.device("cuda" if torch.cuda.is_available() else "cpu"),
        )
        pad_id = config.image_token_id if sees else None
        self._stand_on(runner, tokenizer, path, eos_ids(path, told, tokenizer), preparer, pad_id)
        self._no_pictures = "on vLLM only models of the Qwen2-VL family do"

    @cached_property
    def parameter_count(self) -> int:
        """Number of parameters according to the configuration, without the head."""
        from transformers import AutoModel

        with torch.device("meta"):
            return sum(parameter.numel() for parameter in AutoModel.from_config(self.network.config).parameters())

    @cached_property
    def weights_digest(self) -> bytes:
        """Digest of its files: the weights themselves are in vLLM's processes."""
        return files_digest(Path(self.path))

    @property
    def picture_merge(self) -> int:
        """Patches along each axis that become one token; 1 if it takes no pictures."""
        return self._preparer.merge if isinstance(self._preparer, ImagePreparer) else 1

    def _refuse_library(self) -> Any:
        raise ModelError(f"{self.name} runs on vLLM: transformers cannot generate with it")


def _generation_config(path: str) -> Any:
    """The generation config of a model, or an empty one if it has none."""
    from transformers import GenerationConfig

    try:
        return GenerationConfig.from_pretrained(path)
    except OSError:
        return SimpleNamespace()
