# SPDX-License-Identifier: Apache-2.0
"""What an edge keeps from one prompt to the next: what its model has made of pictures, and the last prompt's keys and
values.

A robot's prompts come again in large part: the same words in front, seven of eight frames. Keeping saves time and
changes no token: a picture is known by its contents, and keys and values are taken over only as far as the new prompt
is the old one, picture by picture.
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
"""Unless configured otherwise: the caches of a prompt of 8 frames on a model of 2 B take about 300 MB."""


@dataclass(frozen=True)
class _Fed:
    """A prompt that a session holds. pictures: where each begins, and the digest of its contents."""

    ids: torch.Tensor
    pictures: tuple[tuple[int, bytes], ...]

    def common(self, other: _Fed) -> int:
        """How many tokens both begin with; a picture is the same as a whole or not at all."""
        limit = min(len(self.ids), len(other.ids))
        different = (self.ids[:limit] != other.ids[:limit]).nonzero()
        common = int(different[0]) if len(different) else limit
        for mine, others in zip(self.pictures, other.pictures, strict=False):
            if mine != others:
                return min(common, mine[0], others[0])
        return common  # where one has a further picture, its ids differ from the other's, or the other ends


class PromptMemory:
    """Prepares the prompts of one model, and lends the session that they are fed to, to one answer at a time.

    looked_at: pictures that the vision tower has seen; vision_s: seconds that decoding and seeing took. taken_over:
    tokens whose keys and values were there already.
    """

    def __init__(self, model: LoadedModel, most_bytes: int = KEPT_BYTES) -> None:
        """most_bytes: of what is kept between two answers; 0: nothing is."""
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
        """What is kept, the cache of the last prompt and its answer included."""
        return self._seen.bytes + (0 if self._session is None else self._session.kv_bytes)

    def session(self) -> ModelSession:
        """The session to feed the next prompt to; its previous user must not use it any more."""
        if self._session is None:
            self._session, self._fed = self._model.new_session(), None
        return self._session

    def rest(self) -> None:
        """An answer is over: keep no more than is allowed between two, and nothing of what was drafted. Costs nothing
        after an answer that never took the prompt in.
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
        """A prompt as the model takes it, and how much of it the session holds already. Raises ModelError."""
        self._worked = True
        digests = [digest_of(picture) for picture in prompt.images]
        # A prompt that is too long is refused before anything is decoded.
        fits = self._model.prompt_length(prompt) < self._model.context_limit
        encoded = self._model.encode(prompt, self._look(prompt, digests) if prompt.images and fits else None)
        feeding = _Fed(encoded.ids, tuple(zip(encoded.picture_starts, digests, strict=True)))
        kept = 0
        if self._fed is not None and self._model.runner.keeps_prompts:
            kept = min(self._fed.common(feeding), len(feeding.ids) - 1)
        self._fed, self._feeding = None, feeding  # nothing is relied on while it changes
        self.taken_over += kept
        return Prepared(encoded, self._model.embed_prompt(encoded), kept=kept)

    def fed(self) -> None:
        """The session has taken the prompt that was prepared last."""
        self._fed, self._feeding = self._feeding, None

    def forget(self) -> None:
        """Nothing is to be relied on: the model has failed."""
        self._session = self._fed = None
        self._seen = SharedStore(self._most_bytes)

    def _look(self, prompt: Prompt, digests: Sequence[bytes]) -> list[SeenPicture]:
        """What the vision tower makes of a prompt's pictures; of new ones in one pass, each content once."""
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
