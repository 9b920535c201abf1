# SPDX-License-Identifier: Apache-2.0
"""Any causal model on the library's own forward: exact, but one sequence a pass, and no layers to look at.

A cache of the library's holds one sequence. What is wanted next is another one, mostly with the same beginning: the
cache is cut back to that and fed the rest. So sequences are rolled back and trees walked, branch by branch. Where a
cache cannot be cut (recurrent states, ropes that change with the length), sequences are fed anew each time.

A prompt with pictures goes in as a whole, with what its pictures became; behind it the sequence is one of ids.
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
"""Context of models whose configuration reports none: recurrent ones."""
_PROBE = 6
_SAME = 1e-2
"""Of the spread of logits: those of one sequence that came in two ways differ by less, also in half precision."""
LENGTH_DEPENDENT_ROPE = ("dynamic", "longrope")
_NOTHING: Mapping[str, Tensor] = {}


class LibraryCache:
    """A cache of the library's that forgets nothing, whatever windows the layers have, and the ids it holds.

    whole: this many ids come first and together, with `extras`: a prompt with pictures. rope_deltas: what such a
    prompt has left in the model for the positions behind it, where the model has such a thing.
    """

    def __init__(self, whole: int = 0, extras: Mapping[str, Tensor] | None = None) -> None:
        from transformers import DynamicCache

        self.library = DynamicCache()
        self.whole = whole
        self.extras = extras or {}
        self.rope_deltas: Tensor | None = None
        self._ids: list[int] = []

    def go_back_to(self, sequence: list[int]) -> int:
        """Cut it to where it begins as the sequence; returns how many ids that are."""
        common = common_length(self._ids, sequence)
        if common < self.whole:
            common = 0
        surplus = self.library.get_seq_length() - common  # with what a forward that failed has left there
        if surplus > 0:
            self.library.crop(-surplus)
        del self._ids[common:]
        return common

    def fed(self, ids: Sequence[int]) -> None:
        """A forward has come through with these."""
        self._ids.extend(ids)


@dataclass
class LibrarySegment(Segment):
    """Rows of one session. cache: None where sequences come as a whole. branches: (sequence, how many of its last rows
    are wanted), their rows one after another are the segment's; of a prompt only the last row is.
    """

    branches: tuple[tuple[list[int], int], ...] = ()


class GenericRunner(WholeRunner):
    """Of one of the library's models.

    keeps_cache: whether sequences grow in a cache that can be cut back. takes: parameters of the library's forward.
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
        self.context_limit: int = getattr(text, "max_position_embeddings", None) or _NO_LIMIT
        embedding: Tensor = hf_model.get_input_embeddings().weight
        self.device: torch.device = embedding.device
        self.dtype: torch.dtype = embedding.dtype
        heads = getattr(text, "num_attention_heads", None) or 1
        self.kv_heads: int = getattr(text, "num_key_value_heads", None) or heads
        self.head_dim: int = getattr(text, "head_dim", None) or max(1, self.hidden_size // heads)
        self.kv_itemsize = self.dtype.itemsize
        self._has_deltas = hasattr(getattr(hf_model, "model", None), "rope_deltas")
        self.keeps_cache = self._cache_can_be_cut(text)

    def new_cache(self, whole: int = 0, extras: Mapping[str, Tensor] | None = None) -> LibraryCache | None:
        """An empty cache; None where there is no use in one. whole, extras: of a LibraryCache."""
        return LibraryCache(whole, extras) if self.keeps_cache else None

    def compute(self, hidden: Tensor, segments: Sequence[LibrarySegment]) -> list[Tensor]:
        """Each sequence's rows by itself."""
        found: list[Tensor] = []
        for segment in segments:
            rows = [self._last_rows(segment.cache, *branch) for branch in segment.branches]
            found += [rows[0].expand(segment.rows, -1)] if sum(map(len, rows)) < segment.rows else rows
        return found

    def _last_rows(self, cache: LibraryCache | None, sequence: list[int], wanted: int) -> Tensor:
        """Logits [wanted, vocab] after each of the last `wanted` ids of a sequence.

        Of a prompt with pictures that has not come as a whole yet nothing looks at them: zeros.
        """
        if cache is None:
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
        """One forward of the library's."""
        settings: dict[str, Any] = {"use_cache": cache is not None}
        if cache is not None:
            settings["past_key_values"] = cache.library
        if "logits_to_keep" in self.takes:
            settings["logits_to_keep"] = wanted
        for name, value in extras.items():
            settings[name] = value.to(self.device, self.dtype if value.is_floating_point() else None)
        if self._has_deltas:  # belongs to a sequence, but the library keeps it in the model
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
        """Try a prompt with pictures: what comes behind it must be what the library makes of all of it at once.

        Raises ModelError, in a few words, where the model cannot be given pictures so.
        """
        if not self.keeps_cache:
            raise ModelError("its cache cannot be cut back")
        behind = [number % self.vocab_size for number in range(_PROBE)]
        stretched = {name: _stretched(value, len(ids), len(behind)) for name, value in extras.items()}
        try:
            whole = self._rows(None, [*ids, *behind], 3, stretched).float()
            cache = LibraryCache(len(ids), extras)
            self._last_rows(cache, [*ids], 1)
            self._last_rows(cache, [*ids, *behind[:2], *behind[:2]], 2)
            parts = self._last_rows(cache, [*ids, *behind], 3).float()
        except Exception as error:  # whatever the library raises; the cause stays attached
            raise ModelError(f"a picture that was tried has failed: {first_line(error)}") from error
        if not bool(((parts - whole).abs() <= _SAME * whole.std()).all()):
            raise ModelError("what comes behind a picture is another thing in parts than as a whole")

    @torch.inference_mode()
    def _cache_can_be_cut(self, text: Any) -> bool:
        """Whether a sequence that came in parts, and was cut back in between, is what it is as a whole: tried."""
        rope = getattr(text, "rope_parameters", None) or {}
        if rope.get("rope_type") in LENGTH_DEPENDENT_ROPE or "past_key_values" not in self.takes:
            return False
        if getattr(self._model, "_is_stateful", False):
            return False
        ids = [number % self.vocab_size for number in range(_PROBE)]
        whole = self._last_rows(None, ids, 3).float()
        try:
            cache = LibraryCache()
            self._last_rows(cache, [*ids[:-3], *ids[:2]], 1)
            parts = self._last_rows(cache, ids, 3).float()
        except Exception:  # whatever the library raises: then without a cache
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
        """What the cache takes, about."""
        return 0 if self._library_cache is None else self._length * self.runner.kv_bytes_a_token

    def start(self, encoded: EncodedPrompt, kept: int = 0) -> None:
        """Forget everything; a prompt comes next."""
        self.evict()
        length = encoded.ids.shape[0]
        self._check_room(length)
        self._library_cache = self.runner.new_cache(length if encoded.extras else 0, encoded.extras)

    def evict(self) -> None:
        """Forget everything and give the cache back."""
        super().evict()
        self._library_cache = None
        self._ids = []

    def keep_path(self, nodes: Sequence[int], below: Sequence[int] = ()) -> None:
        """As ModelSession.keep_path."""
        tree = self.tree
        super().keep_path(nodes, below)
        self._ids.extend(tree.ids[node] for node in nodes)

    def rollback(self, n_tokens_kept: int) -> None:
        """Forget everything after the first `n_tokens_kept` tokens, and any speculative tree."""
        super().rollback(n_tokens_kept)
        del self._ids[n_tokens_kept:]

    def _room_for_chain(self, extension: Extension) -> LibrarySegment:
        rows = extension.rows
        branches = (([*self._ids, *_ids_of(extension)], 1 if extension.last_only else rows),)
        return LibrarySegment(self._library_cache, self._length, rows, branches=branches)

    def hold(self, extension: Extension) -> None:
        """Count in what a forward has taken in."""
        super().hold(extension)
        if extension.parents is None:
            self._ids.extend(_ids_of(extension))

    def _room_for_tree(self, ids: Sequence[int], parents: Sequence[int]) -> LibrarySegment:
        """Nodes of which each goes on from the one before come together."""
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
    """A chain's ids; those of a prompt stand where the embeddings are for other runners."""
    return extension.ids if extension.hidden is None else extension.hidden[:, 0].tolist()


def _stretched(value: Tensor, length: int, more: int) -> Tensor:
    """What a forward takes of each id [1, length], for ids behind those: zeros. Everything else as it is."""
    return torch.nn.functional.pad(value, (0, more)) if value.shape == (1, length) else value
