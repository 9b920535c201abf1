# SPDX-License-Identifier: Apache-2.0
"""Answers thousands of prompts at once on a GPU: one decode step for all slots, recorded as a CUDA graph.

A *slot* is a row of the batch with its own part of the KV cache. A slot whose answer has ended gets the next prompt.
Each step runs over all slots. Nothing is copied to the host while slots decode.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

SLOTS = 2048
CACHE_SHARE = 0.5
"""Share of the device's free memory for keys and values."""
STEPS = 16
"""Decode steps between two checks for ended slots."""
WIDTH_STEP = 128
"""Prompts of similar length share a cache whose width is a multiple of this."""
PREFILL_TOKENS = 65_536
ATTENTION = "specnav_bulk"


@dataclass(frozen=True)
class BulkOptions:
    """Options of bulk answers.

    new_tokens: most tokens of an answer, including its end. ends: ids that end an answer. banned: ids that are never
    generated. temperature: 0 is greedy. min_p: tokens less likely than this share of the likeliest token's probability
    are not sampled (arXiv 2407.01082).
    """

    new_tokens: int
    ends: frozenset[int]
    banned: frozenset[int] = frozenset()
    temperature: float = 0.0
    min_p: float = 0.0
    seed: int = 0


class _Slots:
    """Keys and values [slots, heads, width, size] of every layer, with the cache interface of transformers' layers."""

    def __init__(self, module: Any, count: int, width: int) -> None:
        config, weight = module.config, next(module.parameters())
        size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        shape = (count, config.num_key_value_heads, width, size)
        make = lambda: [  # noqa: E731
            torch.zeros(shape, dtype=weight.dtype, device=weight.device) for _ in range(config.num_hidden_layers)
        ]
        self.keys, self.values = make(), make()
        self.filled: Tensor | None = None  # int64 [n]: slots that a prefill writes into; None while decoding
        self.at = torch.zeros(count, dtype=torch.int64, device=weight.device)

    def update(self, keys: Tensor, values: Tensor, layer: int, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        """Store a layer's new keys and values; returns those that attention reads."""
        if self.filled is not None:
            self.keys[layer][self.filled, :, : keys.shape[2]] = keys
            self.values[layer][self.filled, :, : values.shape[2]] = values
            return keys, values
        where = self.at[:, None, None, None].expand(keys.shape)
        self.keys[layer].scatter_(2, where, keys)
        self.values[layer].scatter_(2, where, values)
        return self.keys[layer], self.values[layer]

    def get_seq_length(self, *_: Any) -> int:
        """Required by transformers; positions are passed explicitly, so the value does not matter."""
        return 0


def _attend(
    module: Any, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, scaling: float | None = None, **_: Any
) -> tuple[Tensor, None]:
    """Attention that groups the query heads of each key-value head, so that no key is copied.

    mask: added to the scores of a single query, [n, 1, 1, width]; None: causal.
    """
    count, heads, length, size = query.shape
    if mask is None:
        groups = heads // key.shape[1]
        key, value = key.repeat_interleave(groups, 1), value.repeat_interleave(groups, 1)
        out = F.scaled_dot_product_attention(query, key, value, is_causal=length > 1, scale=scaling)
    else:
        folded = query.reshape(count, key.shape[1], heads // key.shape[1], size)
        mask = mask.expand(count, key.shape[1], folded.shape[2], key.shape[2])
        out = F.scaled_dot_product_attention(folded, key, value, attn_mask=mask, scale=scaling)
        out = out.reshape(count, heads, 1, size)
    return out.transpose(1, 2), None


@contextmanager
def _own_attention(config: Any) -> Iterator[None]:
    from transformers import AttentionInterface

    AttentionInterface.register(ATTENTION, _attend)
    before, config._attn_implementation = config._attn_implementation, ATTENTION
    try:
        yield
    finally:
        config._attn_implementation = before


@torch.inference_mode()
def bulk_answers(
    module: Any,
    vocabulary: int,
    prompts: Sequence[Sequence[int]],
    options: BulkOptions,
    progress: Callable[[int], None] = lambda done: None,
    slots: int = SLOTS,
) -> list[list[int]]:
    """Answers of a plain causal transformers model (see `network.PLAIN`), in the order of the prompts.

    Prompts must not be empty. progress: called with the number of finished answers.
    """
    answers: list[list[int]] = [[] for _ in prompts]
    device = next(module.parameters()).device
    buckets: dict[int, list[int]] = {}
    for index, prompt in enumerate(prompts):
        width = -(-(len(prompt) + options.new_tokens) // WIDTH_STEP) * WIDTH_STEP
        buckets.setdefault(width, []).append(index)
    done = 0
    on_gpu = [device] if device.type == "cuda" else []
    kernels = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]
    with _own_attention(module.config), torch.random.fork_rng(on_gpu), sdpa_kernel(kernels):
        torch.manual_seed(options.seed % 2**63)
        for width, chosen in sorted(buckets.items()):
            count = min(slots, len(chosen), _slots_that_fit(module, width))
            batch = _Batch(module, vocabulary, count, width, options)
            for index, answer in batch.run(prompts, chosen):
                answers[index] = answer
                done += 1
                if done % 256 == 0 or done == len(prompts):
                    progress(done)
            del batch
    if device.type == "cuda":
        torch.cuda.empty_cache()
    return answers


def _slots_that_fit(module: Any, width: int) -> int:
    weight, config = next(module.parameters()), module.config
    if weight.device.type != "cuda":
        return SLOTS
    size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    each = 2 * config.num_hidden_layers * config.num_key_value_heads * size * width * weight.element_size()
    free = torch.cuda.mem_get_info(weight.device)[0]
    return max(1, int(CACHE_SHARE * free) // each)


class _Batch:
    """All slots of one cache width."""

    def __init__(self, module: Any, vocabulary: int, count: int, width: int, options: BulkOptions) -> None:
        weight = next(module.parameters())
        self.module, self.vocabulary, self.options, self.width = module, vocabulary, options, width
        self.device, self.dtype = weight.device, weight.dtype
        self.cache = _Slots(module, count, width)
        whole = {"dtype": torch.int64, "device": self.device}
        self.last = torch.zeros(count, **whole)
        self.said = torch.zeros(count, **whole)
        self.out = torch.zeros(count, options.new_tokens, **whole)
        self.ended = torch.ones(count, dtype=torch.bool, device=self.device)
        self.ends = torch.tensor(sorted(options.ends), **whole)
        self.banned = torch.tensor(sorted(options.banned), **whole)
        self.columns = torch.arange(width, device=self.device)
        self.graph: torch.cuda.CUDAGraph | None = None

    def run(self, prompts: Sequence[Sequence[int]], chosen: Sequence[int]) -> Iterator[tuple[int, list[int]]]:
        """Yield (index, answer) for the chosen prompts, as answers end."""
        waiting = sorted(chosen, key=lambda index: len(prompts[index]), reverse=True)
        holds: list[int | None] = [None] * len(self.ended)
        while True:
            ended = self.ended.tolist()
            full = [slot for slot, index in enumerate(holds) if index is not None and ended[slot]]
            if full:
                rows = self.out[full].tolist()
                for slot, row, count in zip(full, rows, self.said[full].tolist(), strict=True):
                    index, holds[slot] = holds[slot], None
                    assert index is not None
                    yield index, row[:count]
            free = [slot for slot, index in enumerate(holds) if index is None]
            if waiting and len(free) >= max(1, len(holds) // 16):
                given, waiting = waiting[: len(free)], waiting[len(free) :]
                for slot, index in zip(free, given, strict=False):
                    holds[slot] = index
                self._prefill(free[: len(given)], [prompts[index] for index in given])
            elif not waiting and len(free) == len(holds):
                return
            for _ in range(STEPS):
                self._step()

    def _prefill(self, slots: list[int], prompts: list[Sequence[int]]) -> None:
        longest = max(len(prompt) for prompt in prompts)
        together = max(1, PREFILL_TOKENS // longest)
        for at in range(0, len(slots), together):
            part = prompts[at : at + together]
            width = max(len(prompt) for prompt in part)
            ids = torch.tensor([[*prompt, *[0] * (width - len(prompt))] for prompt in part]).to(self.device)
            lengths = torch.tensor([len(prompt) for prompt in part]).to(self.device)
            where = torch.tensor(slots[at : at + together]).to(self.device)
            self.cache.filled = where
            positions = torch.arange(width, device=self.device).expand_as(ids)
            out = self.module.get_decoder()(
                input_ids=ids, position_ids=positions, past_key_values=self.cache, use_cache=True
            )
            self.cache.filled = None
            rows = torch.arange(len(part), device=self.device)
            picked = self._picked(out.last_hidden_state[rows, lengths - 1])
            self.cache.at[where] = lengths
            self.last[where], self.said[where] = picked, 1
            self.out[where, 0] = picked
            self.ended[where] = torch.isin(picked, self.ends) | (self.options.new_tokens <= 1)

    def _picked(self, hidden: Tensor) -> Tensor:
        scores = self.module.lm_head(hidden)[:, : self.vocabulary].float()
        scores.index_fill_(1, self.banned, float("-inf"))
        if self.options.temperature > 0.0:
            scores = scores / self.options.temperature
            if self.options.min_p > 0.0:
                floor = scores.amax(-1, keepdim=True) + math.log(self.options.min_p)
                scores = scores.masked_fill(scores < floor, float("-inf"))
            scores = scores - torch.empty_like(scores).exponential_().log_()  # the Gumbel trick
        return scores.argmax(-1)

    def _step(self) -> None:
        if self.device.type != "cuda":
            self._decode()
            return
        if self.graph is None:
            self._record()
        assert self.graph is not None
        self.graph.replay()

    def _record(self) -> None:
        """Record the decode step as a graph, and restore the state that the warm-up changes."""
        state = [self.last, self.said, self.out, self.ended, self.cache.at]
        before = [part.clone() for part in state]
        aside = torch.cuda.Stream()
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside):
            for _ in range(2):
                self._decode()
        torch.cuda.current_stream().wait_stream(aside)
        # The next step writes the same keys in the same place again, so the cache needs no copy.
        for part, was in zip(state, before, strict=True):
            part.copy_(was)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self._decode()
        for part, was in zip(state, before, strict=True):
            part.copy_(was)

    def _decode(self) -> None:
        """Generate one token for every slot whose answer has not ended."""
        at = self.cache.at
        mask = torch.zeros(len(at), self.width, dtype=self.dtype, device=self.device)
        mask.masked_fill_(self.columns > at[:, None], float("-inf"))
        out = self.module.get_decoder()(
            input_ids=self.last[:, None],
            position_ids=at[:, None],
            attention_mask=mask[:, None, None],
            past_key_values=self.cache,
            use_cache=True,
        )
        picked = torch.where(self.ended, self.last, self._picked(out.last_hidden_state[:, -1]))
        here = self.said.clamp(max=self.options.new_tokens - 1)[:, None]
        self.out.scatter_(1, here, torch.where(self.ended[:, None], self.out.gather(1, here), picked[:, None]))
        goes_on = ~self.ended
        self.said.add_(goes_on)
        at.add_(goes_on)
        self.last.copy_(picked)
        self.ended.logical_or_(torch.isin(picked, self.ends) | (self.said >= self.options.new_tokens))
