# SPDX-License-Identifier: Apache-2.0
"""Any causal model on the library's own forward pass: exact, but one sequence per pass, without access to layers.

A library cache holds one sequence. The next sequence usually shares a prefix with it, so the cache is cropped to the
common prefix and the rest is fed. Rollbacks work in this way, and trees are computed branch by branch. If a cache
cannot be cropped (recurrent states, ropes that depend on the length), the whole sequence is fed each time.

A prompt with pictures is fed in one piece together with its picture tensors; after it the sequence consists of token
ids.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from specdec.draft import ROOT, common_length
from specdec.errors import ModelError, first_line
from specdec.models.attention.segment import Segment
from specdec.models.plans import Extension
from specdec.models.prompt import EncodedPrompt
from specdec.models.runner import WholeRunner
from specdec.models.session import WholeSession

_NO_LIMIT = 32768
"""Context limit of models whose configuration has none, such as recurrent models."""
_PROBE = 6
_SAME = 1e-2
"""Tolerance, as a share of the logits' standard deviation, for one sequence fed in two ways; enough for half precision.
"""
_LENGTH_DEPENDENT = ("dynamic", "longrope")
_NOTHING: Mapping[str, Tensor] = {}


def ropes_of(text: Any) -> list[Mapping[str, Any]]:
    """The ropes of a text config: one, or one for each type of layers."""
    rope: Mapping[str, Any] = getattr(text, "rope_parameters", None) or {}
    return [one for one in rope.values() if isinstance(one, Mapping)] or [rope]


def length_dependent_rope(text: Any) -> str:
    """The type of a rope that changes with the length of the sequence; "" if there is none."""
    kinds = (rope.get("rope_type", "") for rope in ropes_of(text))
    return next((kind for kind in kinds if kind in _LENGTH_DEPENDENT), "")


def context_limit_of(text: Any) -> int:
    """Most tokens of prompt and answer, from a text config; MPT has a name of its own for it."""
    told = (getattr(text, name, None) for name in ("max_position_embeddings", "max_seq_len"))
    return next((int(limit) for limit in told if limit), _NO_LIMIT)


class LibraryCache:
    """A library cache and the ids in it. It keeps all tokens, even for layers with a window.

    whole: length of a prompt with pictures, which is fed in one piece together with `extras`; 0: none. rope_deltas: the
    model's position offset after that prompt, if the model has one.
    """

    def __init__(self, whole: int = 0, extras: Mapping[str, Tensor] | None = None) -> None:
        from transformers import DynamicCache

        self.library = DynamicCache()
        self.whole = whole
        self.extras = extras or {}
        self.rope_deltas: Tensor | None = None
        self._ids: list[int] = []

    def go_back_to(self, sequence: list[int]) -> int:
        """Truncate to the common prefix with `sequence`; returns its length."""
        common = common_length(self._ids, sequence)
        if common < self.whole:
            common = 0
        surplus = self.library.get_seq_length() - common  # includes leftovers of a failed forward pass
        if surplus > 0:
            self.library.crop(-surplus)
        del self._ids[common:]
        return common

    def fed(self, ids: Sequence[int]) -> None:
        """Record ids that a forward pass has added."""
        self._ids.extend(ids)


@dataclass
class LibrarySegment(Segment):
    """Rows of one session. cache: None if whole sequences are fed. branches: (sequence, number of its last rows
    wanted); their rows, concatenated, are the segment's rows. For a prompt only the last row is wanted.
    """

    branches: tuple[tuple[list[int], int], ...] = ()


class GenericRunner(WholeRunner):
    """Runs a transformers model.

    keeps_cache: whether the model's cache can be cropped. takes: parameters of the model's `forward`.
    """

    what = "transformers' own forward pass"
    keeps_prompts = False

    def __init__(self, hf_model: Any, vocab_size: int) -> None:
        super().__init__()
        text = hf_model.config.get_text_config()
        self._model = hf_model
        self.takes = inspect.signature(hf_model.forward).parameters
        self.vocab_size = vocab_size
        self.hidden_size: int = text.hidden_size
        self.layer_count: int = text.num_hidden_layers
        self.context_limit = context_limit_of(text)
        embedding: Tensor = hf_model.get_input_embeddings().weight
        self.device: torch.device = embedding.device
        self.dtype: torch.dtype = embedding.dtype
        heads = getattr(text, "num_attention_heads", None) or 1
        self.kv_heads: int = getattr(text, "num_key_value_heads", None) or heads
        self.head_dim: int = getattr(text, "head_dim", None) or max(1, self.hidden_size // heads)
        self.kv_itemsize = self.dtype.itemsize
        self._has_deltas = hasattr(getattr(hf_model, "model", None), "rope_deltas")
        longropes = [rope for rope in ropes_of(text) if rope.get("rope_type") == "longrope"]
        self._longest_with_short_rope = longropes[0]["original_max_position_embeddings"] if longropes else 0
        self.keeps_cache = self._cache_can_be_cut(text)

    def new_cache(self, whole: int = 0, extras: Mapping[str, Tensor] | None = None) -> LibraryCache | None:
        """An empty cache; None if the model's cache cannot be used. whole, extras: as in LibraryCache."""
        return LibraryCache(whole, extras) if self.keeps_cache else None

    def compute(self, hidden: Tensor, segments: Sequence[LibrarySegment]) -> list[Tensor]:
        """Compute each sequence in its own pass."""
        found: list[Tensor] = []
        for segment in segments:
            rows = [self._last_rows(segment.cache, *branch) for branch in segment.branches]
            found += [rows[0].expand(segment.rows, -1)] if sum(map(len, rows)) < segment.rows else rows
        return found

    def _last_rows(self, cache: LibraryCache | None, sequence: list[int], wanted: int) -> Tensor:
        """Logits [wanted, vocab] after each of the last `wanted` ids of a sequence.

        Zeros for a prompt with pictures that is not complete yet: nothing reads them.
        """
        if cache is None:
            short = self._longest_with_short_rope - (len(sequence) - wanted)
            if 0 < short < wanted:  # one token at a time, their sequences would have had the other rope
                before = self._rows(None, sequence[: self._longest_with_short_rope], short)
                return torch.cat([before, self._rows(None, sequence, wanted - short)])
            return self._rows(None, sequence, wanted)
        if len(sequence) < cache.whole:
            return torch.zeros(wanted, self.vocab_size, device=self.device)
        known = cache.go_back_to(sequence[:-wanted])
        if known < cache.whole < len(sequence):
            self._rows(cache, sequence[: cache.whole], 1, cache.extras)
            return self._rows(cache, sequence[cache.whole :], wanted)
        return self._rows(cache, sequence[known:], wanted, cache.extras if known < cache.whole else {})

    def _rows(
        self,
        cache: LibraryCache | None,
        fresh: list[int],
        wanted: int,
        extras: Mapping[str, Tensor] = _NOTHING,
    ) -> Tensor:
        """One forward pass of the library's model."""
        settings: dict[str, Any] = {"use_cache": cache is not None}
        if cache is not None:
            settings["past_key_values"] = cache.library
        if "logits_to_keep" in self.takes:
            settings["logits_to_keep"] = wanted
        for name, value in extras.items():
            settings[name] = value.to(self.device, self.dtype if value.is_floating_point() else None)
        if self._has_deltas:  # a property of the sequence, which the library stores in the model
            self._model.model.rope_deltas = None if cache is None else cache.rope_deltas
        ids = torch.tensor([fresh], device=self.device)
        rows: Tensor = self._model(input_ids=ids, **settings).logits[0, -wanted:]
        if cache is not None:
            cache.fed(fresh)
            if self._has_deltas:
                cache.rope_deltas = self._model.model.rope_deltas
        return rows

    @torch.inference_mode()
    def check_pictures(self, ids: Sequence[int], extras: Mapping[str, Tensor]) -> None:
        """Check that tokens fed after a prompt with pictures give the same logits as everything fed at once.

        Raises ModelError, with a short reason, if the model cannot take pictures in this way.
        """
        if not self.keeps_cache:
            raise ModelError("its cache cannot be cropped")
        behind = [number % self.vocab_size for number in range(_PROBE)]
        stretched = {name: _stretched(value, len(ids), len(behind)) for name, value in extras.items()}
        try:
            whole = self._rows(None, [*ids, *behind], 3, stretched).float()
            cache = LibraryCache(len(ids), extras)
            self._last_rows(cache, [*ids], 1)
            self._last_rows(cache, [*ids, *behind[:2], *behind[:2]], 2)
            parts = self._last_rows(cache, [*ids, *behind], 3).float()
        except Exception as error:  # whatever the library raises; the cause stays attached
            raise ModelError(f"a test picture failed: {first_line(error)}") from error
        if not bool(((parts - whole).abs() <= _SAME * whole.std()).all()):
            raise ModelError("tokens after a picture give other logits when fed in parts")

    @torch.inference_mode()
    def _cache_can_be_cut(self, text: Any) -> bool:
        """Test whether a sequence fed in parts, with a crop in between, gives the same logits as when fed whole."""
        if length_dependent_rope(text) or "past_key_values" not in self.takes:
            return False
        if getattr(self._model, "_is_stateful", False):
            return False
        ids = [number % self.vocab_size for number in range(_PROBE)]
        whole = self._last_rows(None, ids, 3).float()
        try:
            cache = LibraryCache()
            self._last_rows(cache, [*ids[:-3], *ids[:2]], 1)
            parts = self._last_rows(cache, ids, 3).float()
        except Exception:  # whatever the library raises: run without a cache
            return False
        return bool(((parts - whole).abs() <= _SAME * whole.std()).all())


class GenericSession(WholeSession):
    """One session on a GenericRunner."""

    runner: GenericRunner  # type: ignore[assignment]

    def __init__(self, model: Any) -> None:
        super().__init__(model)
        self._library_cache: LibraryCache | None = None
        self._ids: list[int] = []

    @property
    def kv_bytes(self) -> int:
        """Approximate size of the cache."""
        return 0 if self._library_cache is None else self._length * self.runner.kv_bytes_a_token

    def start(self, encoded: EncodedPrompt, kept: int = 0) -> None:
        """Drop everything, and prepare for a prompt."""
        self.evict()
        length = encoded.ids.shape[0]
        self._check_room(length)
        self._library_cache = self.runner.new_cache(length if encoded.extras else 0, encoded.extras)

    def evict(self) -> None:
        """Drop everything, the cache included."""
        super().evict()
        self._library_cache = None
        self._ids = []

    def keep_path(self, nodes: Sequence[int], below: Sequence[int] = ()) -> None:
        """As ModelSession.keep_path."""
        tree = self.tree
        super().keep_path(nodes, below)
        self._ids.extend(tree.ids[node] for node in nodes)

    def rollback(self, n_tokens_kept: int) -> None:
        """Drop everything after the first `n_tokens_kept` tokens, and any token tree."""
        super().rollback(n_tokens_kept)
        del self._ids[n_tokens_kept:]

    def _room_for_chain(self, extension: Extension) -> LibrarySegment:
        rows = extension.rows
        branches = (([*self._ids, *_ids_of(extension)], 1 if extension.last_only else rows),)
        return LibrarySegment(self._library_cache, self._length, rows, branches=branches)

    def hold(self, extension: Extension) -> None:
        """Record the tokens that a forward pass has added."""
        super().hold(extension)
        if extension.parents is None:
            self._ids.extend(_ids_of(extension))

    def _room_for_tree(self, ids: Sequence[int], parents: Sequence[int]) -> LibrarySegment:
        """Consecutive nodes that form a chain share one sequence."""
        held = len(self.tree)
        paths = [[self.tree.ids[step] for step in self.tree.path(node)] for node in range(held)]
        branches: list[tuple[list[int], int]] = []
        for node, (token, parent) in enumerate(zip(ids, parents, strict=True), start=held):
            paths.append([*(paths[parent] if parent != ROOT else ()), token])
            together = branches and parent == node - 1
            wanted = branches.pop()[1] + 1 if together else 1
            branches.append(([*self._ids, *paths[node]], wanted))
        return LibrarySegment(self._library_cache, self._length + held, len(ids), branches=tuple(branches))


def _ids_of(extension: Extension) -> Sequence[int]:
    """A chain's ids. For this runner, a prompt's ids are in `hidden`, where other runners have embeddings."""
    return extension.ids if extension.hidden is None else extension.hidden[:, 0].tolist()


def _stretched(value: Tensor, length: int, more: int) -> Tensor:
    """Pad a per-token input [1, length] with zeros for `more` tokens; other inputs are returned unchanged."""
    return torch.nn.functional.pad(value, (0, more)) if value.shape == (1, length) else value
