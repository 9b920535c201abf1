# SPDX-License-Identifier: Apache-2.0
"""Caches that an edge keeps between prompts: picture embeddings, and the KV cache of the last prompt.

Most of a robot's prompt repeats: the same leading text, seven of eight frames. The caches save time and change no
token. Pictures are identified by their contents, and the KV cache is reused only up to the first difference between the
two prompts, picture by picture.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from specdec.link.pictures import digest_of
from specdec.models.images import SeenPicture
from specdec.models.loaded import LoadedModel
from specdec.models.plans import Prepared
from specdec.models.prompt import Prompt
from specdec.models.session import ModelSession
from specdec.store import SharedStore

KEPT_BYTES = 512 << 20
"""Default bound. A prompt with 8 frames takes about 300 MB on a model with 2 B parameters."""


@dataclass(frozen=True)
class _Fed:
    """A prompt in a session's KV cache. pictures: start position and content digest of each."""

    ids: torch.Tensor
    pictures: tuple[tuple[int, bytes], ...]

    def common(self, other: _Fed) -> int:
        """Length of the common prefix; a picture matches as a whole or not at all."""
        limit = min(len(self.ids), len(other.ids))
        different = (self.ids[:limit] != other.ids[:limit]).nonzero()
        common = int(different[0]) if len(different) else limit
        for mine, others in zip(self.pictures, other.pictures, strict=False):
            if mine != others:
                return min(common, mine[0], others[0])
        return common  # if one has a further picture, their ids differ there or the other one ends


class PromptMemory:
    """Prepares the prompts of one model, and lends its session to one answer at a time.

    looked_at: pictures encoded by the vision tower. vision_s: seconds spent on decoding and encoding pictures.
    taken_over: prompt tokens that were in the KV cache already.
    """

    def __init__(self, model: LoadedModel, most_bytes: int = KEPT_BYTES) -> None:
        """most_bytes: most bytes kept between answers; 0: nothing is kept."""
        self._model = model
        self._most_bytes = most_bytes
        self._seen = SharedStore(most_bytes)
        self._session: ModelSession | None = None
        self._fed: _Fed | None = None
        self._feeding: _Fed | None = None
        self._worked = False
        self.looked_at = 0
        self.vision_s = 0.0
        self.taken_over = 0

    @property
    def kept_bytes(self) -> int:
        """Bytes kept, including the KV cache of the last prompt and its answer."""
        return self._seen.bytes + (0 if self._session is None else self._session.kv_bytes)

    def session(self) -> ModelSession:
        """The session for the next prompt; its previous user must no longer use it."""
        if self._session is None:
            self._session, self._fed = self._model.new_session(), None
        return self._session

    def rest(self) -> None:
        """After an answer: drop drafted tokens, and evict down to the bound. Does nothing if the prompt was never
        prepared.
        """
        if not self._worked:
            return
        self._worked = False
        if self._session is not None:
            self._session.rollback(self._session.length)
        if self._session is not None and self._session.kv_bytes > self._most_bytes:
            self._session = self._fed = None
        self._seen.leave(self._most_bytes - (0 if self._session is None else self._session.kv_bytes))

    @torch.inference_mode()
    def prepare(self, prompt: Prompt) -> Prepared:
        """Encode a prompt for the model, and count how much of it the session holds already. Raises ModelError."""
        self._worked = True
        digests = [digest_of(picture) for picture in prompt.images]
        # A prompt that is too long is refused before any picture is decoded.
        fits = self._model.prompt_length(prompt) < self._model.context_limit
        encoded = self._model.encode(prompt, self._look(prompt, digests) if prompt.images and fits else None)
        feeding = _Fed(encoded.ids, tuple(zip(encoded.picture_starts, digests, strict=True)))
        kept = 0
        if self._fed is not None and self._model.runner.keeps_prompts:
            kept = min(self._fed.common(feeding), len(feeding.ids) - 1)
        self._fed, self._feeding = None, feeding  # the cache is unreliable while it changes
        self.taken_over += kept
        return Prepared(encoded, self._model.embed_prompt(encoded), kept=kept)

    def fed(self) -> None:
        """The prompt prepared last is now in the session's KV cache."""
        self._fed, self._feeding = self._feeding, None

    def forget(self) -> None:
        """Drop everything, because the model has failed."""
        self._session = self._fed = None
        self._seen = SharedStore(self._most_bytes)

    def _look(self, prompt: Prompt, digests: Sequence[bytes]) -> list[SeenPicture]:
        """The embeddings of a prompt's pictures. New pictures are encoded in one pass, each distinct one once."""
        began = time.perf_counter()
        seen: dict[bytes, SeenPicture] = {}
        new: dict[bytes, bytes] = {}
        for digest, picture in zip(digests, prompt.images, strict=True):
            known = self._seen.get(digest)
            if known is not None:
                seen[digest] = known
            else:
                new[digest] = picture
        if new:
            found = self._model.look([self._model.decode(picture) for picture in new.values()])
            self.looked_at += len(new)
            for digest, picture_seen in zip(new, found, strict=True):
                seen[digest] = picture_seen
                features = picture_seen.features
                self._seen.put(digest, picture_seen, features.numel() * features.element_size())
        self.vision_s += time.perf_counter() - began
        return [seen[digest] for digest in digests]
