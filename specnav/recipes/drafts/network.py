# SPDX-License-Identifier: Apache-2.0
"""A causal model for training: batches of equally long rows through transformers' forward, with gradients.

Pictures pass through the model's vision tower once, without gradients, because only the decoder is trained.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from specdec.errors import ModelError, first_line
from specdec.models import EncodedPrompt, LoadedModel, load_model
from specdec.models.loaded import first_difference
from specdec.models.shared import shared_of
from specdec.store import SharedStore
from specnav.recipes.drafts.bulk import BulkOptions, bulk_answers
from specnav.recipes.errors import TrainingError
from specnav.recipes.samples import ExitSample

_log = logging.getLogger(__name__)
TOGETHER = 128
SEEN_BYTES = 2 << 30
PLAIN = frozenset({"llama", "mistral", "qwen2", "qwen3"})
"""Model types without pictures that consist only of layers, a norm and a head."""
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class PaddedRows:
    """A batch of texts, padded at the end.

    ids: int64 [n, length]. positions: int64 [n, length], or [3, n, length] for a model with pictures. learn: float32
    [n, length], weight of each token in the loss. features: image embeddings of all pictures in order,
    [tokens, hidden_size], or None.
    """

    ids: Tensor
    positions: Tensor
    learn: Tensor
    features: Tensor | None = None


class DraftNetwork:
    """A model from a folder or hub id, whose decoder can be trained.

    Attributes:
        answers_in_bulk: Whether `bulk_answers` generates answers: on a GPU, for a plain model without a sliding window,
            until it fails.
    """

    def __init__(self, path: str, device: str = "auto", trained: bool = False, dtype: str = "auto") -> None:
        """Load the model. trained: only the decoder gets gradients. Raises ModelError and TrainingError."""
        # Half precision would lose small updates, so trained weights are float32; only the computation uses it.
        number_type = "float32" if trained else dtype
        self.loaded: LoadedModel = load_model(path, device=device, dtype=number_type, recorded=False)
        if self.loaded.is_multimodal and (self.loaded.family is None or self.loaded.family.deepstack):
            raise TrainingError(f"{path} uses pictures in a way that cannot be trained here: use a Qwen2-VL model")
        self.module: Any = self.loaded.hf_model
        self.sees = self.loaded.is_multimodal
        self.shared = shared_of(path)
        if trained:
            self._let_learn()
        self._seen = SharedStore(SEEN_BYTES)
        self.answers_in_bulk = self.device.type == "cuda" and self.packs(self.loaded.context_limit)

    def _let_learn(self) -> None:
        fixed = frozenset() if self.shared is None else frozenset(self.shared.about.sha256)
        for name, weight in self.module.named_parameters():  # a tied head is not a separate parameter
            weight.requires_grad_("visual." not in name and name not in fixed)

    @property
    def vocabulary(self) -> int:
        """Number of real tokens, without padding of the embedding."""
        return self.loaded.vocab_size

    @property
    def device(self) -> torch.device:
        """The model's device."""
        return next(self.module.parameters()).device

    def logits(
        self,
        ids: Tensor,
        positions: Tensor,
        features: Tensor | None = None,
        sees: Tensor | None = None,
        where: Tensor | None = None,
        among: Tensor | None = None,
    ) -> Tensor:
        """Logits, float32 [n, length, vocabulary].

        Args:
            ids: see `PaddedRows`.
            positions: see `PaddedRows`.
            features: see `PaddedRows`.
            sees: attention mask, bool [n, 1, length, length]; None: causal.
            where: flat positions, int64 [places]; the result is then [places, vocabulary].
            among: tokens, int64 [tokens]; the last dimension then has only these.
        """
        ids, positions = ids.to(self.device), positions.to(self.device)
        features, sees, where, among = (
            None if part is None else part.to(self.device) for part in (features, sees, where, among)
        )
        # Without a mask, transformers interprets a jump in the positions as the beginning of another text.
        mask = torch.ones_like(ids) if sees is None else self._as_mask(sees)
        how = {"position_ids": positions, "attention_mask": mask, "use_cache": False}
        if self.sees:
            out = self.module.model.language_model(inputs_embeds=self._embed(ids, features), **how)
        elif self._is_plain:
            out = self.module.get_decoder()(input_ids=ids, **how)
        else:  # other models may process the logits after the head
            found = self.module(input_ids=ids, **how).logits[..., : self.vocabulary].float()
            found = found if where is None else found.flatten(0, 1)[where]
            return found if among is None else found[..., among]
        hidden = out.last_hidden_state
        hidden = hidden if where is None else hidden.flatten(0, 1)[where]
        if among is not None:
            head = self.module.lm_head
            return F.linear(hidden, head.weight[among], None if head.bias is None else head.bias[among]).float()
        return self.module.lm_head(hidden)[..., : self.vocabulary].float()

    def packs(self, length: int) -> bool:
        """Whether several texts may share a row of `length` positions.

        This needs a plain model without pictures, whose attention accepts any mask, and no shorter sliding window.
        """
        config = self.module.config
        window = getattr(config, "sliding_window", None) or length
        return not self.sees and self._is_plain and window >= length

    @property
    def _is_plain(self) -> bool:
        return getattr(self.module.config, "model_type", "") in PLAIN

    def _as_mask(self, sees: Tensor) -> Tensor:
        """The mask in the form that the model's attention needs: bool for sdpa, else numbers added to the scores."""
        if self.module.config._attn_implementation == "sdpa":
            return sees
        return torch.zeros(sees.shape).masked_fill(~sees, torch.finfo(torch.float32).min)

    def _embed(self, ids: Tensor, features: Tensor | None) -> Tensor:
        hidden = self.module.get_input_embeddings()(ids)
        if features is None:
            return hidden
        assert self.loaded.image_pad_id is not None, "the model accepts pictures"
        where = ids.eq(self.loaded.image_pad_id)[..., None].expand_as(hidden)
        return hidden.masked_scatter(where, features.to(hidden.dtype))

    def encode(self, sample: ExitSample) -> EncodedPrompt:
        """Encode a sample for this model; each picture is embedded only once. Raises TrainingError."""
        prompt = sample.read()
        if not sample.images:
            return self.loaded.encode(prompt)
        try:
            seen = [self._look(file, data) for file, data in zip(sample.images, prompt.images, strict=True)]
            return self.loaded.encode(prompt, seen)
        except ModelError as error:
            raise TrainingError(f"{sample.origin}: {error}; correct or remove it") from error

    def _look(self, file: str, data: bytes) -> Any:
        known = self._seen.get(file.encode())
        if known is None:
            known = self.loaded.look([self.loaded.decode(data)])[0]
            self._seen.put(file.encode(), known, known.features.numel() * known.features.element_size())
        return known

    def rows(self, samples: Sequence[ExitSample], length: int) -> PaddedRows:
        """Samples as a batch, truncated to `length`. All tokens of an answer have equal weight."""
        count = len(samples)
        ids = torch.full((count, length), min(self.loaded.eos_token_ids, default=0))
        learn = torch.zeros(count, length)
        grid = torch.arange(length).expand(3, count, length).clone()
        features = []
        for row, sample in enumerate(samples):
            encoded = self.encode(sample)
            known = min(encoded.ids.shape[0], length)
            ids[row, :known] = encoded.ids[:known]
            learn[row, min(sample.start + encoded.ids.shape[0] - len(sample.ids), known) : known] = 1.0
            if encoded.positions is not None:
                grid[:, row, :known] = encoded.positions[:, :known]
            if encoded.features is not None:
                features.append(encoded.features.float())
        positions = grid if self.sees else grid[0]
        return PaddedRows(ids, positions, learn, torch.cat(features).clone() if features else None)

    @torch.inference_mode()
    def answer(
        self,
        prompts: Sequence[ExitSample],
        new_tokens: int,
        temperature: float = 0.0,
        seed: int = 0,
        progress: Progress = lambda done, total: None,
        min_p: float = 0.0,
    ) -> list[ExitSample]:
        """Texts: the prompts with answers of at most `new_tokens` tokens, including their end, in the given order.

        min_p: tokens less likely than this share of the likeliest one's probability are not sampled.
        """
        if self.answers_in_bulk:
            options = BulkOptions(
                new_tokens, self.loaded.eos_token_ids, self.loaded.never_drafted, temperature, min_p, seed
            )
            try:
                return self._answer_in_bulk(prompts, options, progress)
            except RuntimeError as error:  # attention, recording or memory: the type of all of torch's own errors
                self.answers_in_bulk = False
                _log.warning("answers are not generated in bulk, but %d at a time (%s)", TOGETHER, first_line(error))
        texts: list[ExitSample | None] = [None] * len(prompts)
        order = sorted(range(len(prompts)), key=lambda index: len(prompts[index].ids))
        done = 0
        for at in range(0, len(order), TOGETHER):
            chosen = order[at : at + TOGETHER]
            generator = torch.Generator(self.device).manual_seed((seed * 1_000_003 + at) % 2**63)
            encoded = [self.encode(prompts[i]) for i in chosen]
            answers = self.answer_group(encoded, new_tokens, temperature, generator, min_p)
            for index, answer in zip(chosen, answers, strict=True):
                texts[index] = prompts[index].answered(answer)
            done += len(chosen)
            progress(done, len(prompts))
        return [text for text in texts if text is not None]

    def _answer_in_bulk(
        self, prompts: Sequence[ExitSample], options: BulkOptions, progress: Progress
    ) -> list[ExitSample]:
        asked = [prompt.ids for prompt in prompts]
        said = bulk_answers(self.module, self.vocabulary, asked, options, lambda done: progress(done, len(asked)))
        return [prompt.answered(answer) for prompt, answer in zip(prompts, said, strict=True)]

    @torch.inference_mode()
    def answer_group(
        self,
        prompts: Sequence[EncodedPrompt],
        new_tokens: int,
        temperature: float = 0.0,
        generator: torch.Generator | None = None,
        min_p: float = 0.0,
    ) -> list[list[int]]:
        """Answers to encoded prompts in one left-padded batch; see `answer`."""
        from transformers import DynamicCache

        count, width = len(prompts), max(prompt.ids.shape[0] for prompt in prompts)
        new_tokens = min(new_tokens, self.loaded.context_limit - width)
        ends = self.loaded.eos_token_ids
        ids = torch.full((count, width), min(ends, default=0))
        mask = torch.zeros(count, width + new_tokens, dtype=torch.int64)
        mask[:, width:] = 1
        positions = torch.zeros(3, count, width, dtype=torch.int64)
        features = []
        for row, prompt in enumerate(prompts):
            begin = width - prompt.ids.shape[0]
            ids[row, begin:], mask[row, begin:width] = prompt.ids, 1
            own = torch.arange(width - begin).expand(3, -1) if prompt.positions is None else prompt.positions
            positions[:, row, begin:] = own
            if prompt.features is not None:
                features.append(prompt.features)
        following = torch.tensor([prompt.ids.shape[0] + prompt.delta for prompt in prompts], device=self.device)
        banned = torch.tensor(sorted(self.loaded.never_drafted), dtype=torch.int64, device=self.device)
        cache, said, running = DynamicCache(), [], torch.ones(count, dtype=torch.bool)
        ids, mask, positions = ids.to(self.device), mask.to(self.device), positions.to(self.device)
        pictures = torch.cat(features) if features else None
        for step in range(new_tokens):
            scores = self._next(ids, positions, mask[:, : width + step], cache, pictures)
            scores = scores.index_fill(1, banned, float("-inf"))
            if temperature > 0.0:
                chances = (scores / temperature).softmax(-1)
                chances = chances * (chances >= min_p * chances.amax(-1, keepdim=True))
                picked = torch.multinomial(chances, 1, generator=generator)[:, 0]
            else:
                picked = scores.argmax(-1)
            said.append(picked.cpu())
            running &= ~torch.isin(said[-1], torch.tensor(sorted(ends)))
            if not running.any():
                break
            ids, pictures = picked[:, None], None
            positions = (following + step).expand(3, count)[..., None]
        return [_up_to_end(row, ends) for row in torch.stack(said, 1).tolist()] if said else [[] for _ in prompts]

    def _next(self, ids: Tensor, positions: Tensor, mask: Tensor, cache: Any, features: Tensor | None) -> Tensor:
        """Logits [n, vocabulary] after the last column."""
        how = {"attention_mask": mask, "past_key_values": cache, "use_cache": True}
        if not self.sees:
            out = self.module(input_ids=ids, position_ids=positions[0], logits_to_keep=1, **how)
            return out.logits[:, -1, : self.vocabulary].float()
        hidden = self._embed(ids, features)
        out = self.module.model.language_model(inputs_embeds=hidden, position_ids=positions, **how)
        return self.module.lm_head(out.last_hidden_state[:, -1])[:, : self.vocabulary].float()


def check_same_vocabulary(target: LoadedModel, draft: LoadedModel) -> None:
    """Raise TrainingError unless both models have the same vocabulary."""
    if target.vocabulary_fingerprint != draft.vocabulary_fingerprint:
        raise TrainingError(
            f"draft {draft.path} and target {target.path} have different vocabularies "
            f"({first_difference(draft, target)}): start from a model of the target's family, "
            "or from layers of it (layers:0,7)"
        )


def _up_to_end(ids: list[int], ends: frozenset[int]) -> list[int]:
    for place, token in enumerate(ids):
        if token in ends:
            return ids[: place + 1]
    return ids
