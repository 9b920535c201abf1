# SPDX-License-Identifier: Apache-2.0
"""A loaded model: weights, tokenizer and image preparation behind one interface for text and vision models.

It is shared and read-only once loaded; everything that changes during an answer is in a ModelSession.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor

from specdec.errors import ModelError
from specdec.isolation.grammars import IsolatedGrammars
from specdec.isolation.pictures import PictureWorkers
from specdec.isolation.workers import Launcher, Ticket
from specdec.models.digest import weights_digest
from specdec.models.families import Family
from specdec.models.images import ImagePreparer, PreparedImages, SeenPicture
from specdec.models.library.generic import GenericRunner, GenericSession
from specdec.models.library.pictures import LibraryPictures, probe_of
from specdec.models.positions import expand_image_pads, image_token_count, mrope_positions
from specdec.models.prompt import EncodedPrompt, Prompt
from specdec.models.runner import DecoderRunner, ForwardOptions
from specdec.models.session import ModelSession
from specdec.models.static.tower import RecordedTower, record_tower
from specdec.pictures.sizes import PictureRules, picture_size
from specdec.sampling.choice import AnyGrammar, Soon
from specdec.sampling.disturbed import Disturbance
from specdec.sampling.grammar import Grammars

RowTime = tuple[int, int]
"""(rows of a forward pass, its microseconds)."""


class LoadedModel:
    """A causal language model, possibly with images, ready to open sessions. Created by `load_model`.

    Attributes:
        row_us: Times of its forward passes on this device, if measured (specdec.models.timing.row_times).
        disturbance: Noise on its logits, to emulate a given acceptance; never for a target.
    """

    _recorded_tower: RecordedTower | None = None
    cache_bytes = 0
    """Most bytes of all sessions' KV caches, if fixed at load time; 0: not fixed."""

    def __init__(
        self,
        network: Any,
        tokenizer: Any,
        path: str,
        eos_token_ids: frozenset[int],
        family: Family | None,
        preparer: ImagePreparer | None = None,
        load_hf_model: Callable[[], Any] | None = None,
        how: ForwardOptions = ForwardOptions(),
    ) -> None:
        """Create a model from its parts.

        Args:
            network: The modules with the weights, named like the library's.
            tokenizer: The tokenizer.
            path: Folder or hub id.
            eos_token_ids: Ids that end an answer.
            family: The family whose forward pass is used; None: the library's forward pass.
            preparer: Prepares pictures; None: the model takes none.
            load_hf_model: Loads the library's model from the same files, for uses that need it; None: the network is
                the library's model.
            how: How forward passes are computed.

        Raises:
            ModelError: The layers cannot be compiled or recorded.
        """
        self.network = network
        self._load_hf_model = load_hf_model
        self.family = family
        self.deterministic = how.deterministic
        real = real_vocabulary_size(tokenizer)
        runner: DecoderRunner
        if family is None:
            generic: Any = GenericRunner(network, min(real, network.get_input_embeddings().num_embeddings))
            runner = generic  # supports the interface, except for layers (sees_layers)
        else:
            text_model = network.model if preparer is None else network.model.language_model
            real = min(real, text_model.embed_tokens.weight.shape[0])
            runner = DecoderRunner(text_model, network.lm_head, real, family, how)
            if how.compiled:
                runner.try_out()
        pad_id = None if preparer is None else network.config.image_token_id
        if preparer is not None and runner.device.type == "cuda":
            preparer.move_to(runner.device)
        if preparer is not None and runner.static is not None and runner.device.type == "cuda":
            self._recorded_tower = record_tower(network.model.visual, network.config.vision_config, runner.device)
        self._stand_on(runner, tokenizer, path, eos_token_ids, preparer, pad_id)

    @property
    def name(self) -> str:
        """The public name: the hub id, or the last part of a local path."""
        return os.path.basename(os.path.abspath(self.path)) if os.path.exists(self.path) else self.path

    def _stand_on(
        self,
        runner: DecoderRunner,
        tokenizer: Any,
        path: str,
        eos_token_ids: frozenset[int],
        preparer: ImagePreparer | None,
        image_pad_id: int | None,
    ) -> None:
        """Initialisation that does not depend on the runner's kind."""
        self.runner = runner
        self.tokenizer = tokenizer
        self.path = path
        self.is_multimodal = preparer is not None
        self._preparer: ImagePreparer | LibraryPictures | None = preparer
        self._library_pictures: LibraryPictures | None = None
        self._no_pictures = "use a Qwen-VL model"
        self.vocab_size = runner.vocab_size
        # Some checkpoints have -1: nothing ends an answer.
        self.eos_token_ids = frozenset(token for token in eos_token_ids if 0 <= token < self.vocab_size)
        self.context_limit = runner.context_limit
        self.image_pad_id = image_pad_id
        self.never_drafted = self._placeholder_ids()
        self.own_grammars = Grammars(tokenizer, self.vocab_size, self.eos_token_ids)
        self.grammars: Grammars | IsolatedGrammars = self.own_grammars
        self.row_us: list[RowTime] = []
        self.disturbance: Disturbance | None = None

    def add_pictures(self, make: Callable[[Mapping[str, Any]], LibraryPictures]) -> str:
        """Accept pictures, on the library's forward pass, if a test picture works. Returns "" or the reason against it.

        make: creates the picture preparation from the parameters of the model's `forward`.
        """
        runner: Any = self.runner
        try:
            pictures = make(runner.takes)
            probe = pictures.encode(*probe_of(pictures))
            assert probe.extras is not None
            runner.check_pictures(probe.ids.tolist(), probe.extras)
        except ModelError as error:
            self._no_pictures = str(error)
            return self._no_pictures
        self._preparer = self._library_pictures = pictures
        self.is_multimodal = True
        self.image_pad_id, self.never_drafted = pictures.placeholder, self._placeholder_ids()
        return ""

    @cached_property
    def hf_model(self) -> Any:
        """The library's own model, for its `generate`; loaded at first use. If the network was read without the
        library, the two share no weights.
        """
        return self.network if self._load_hf_model is None else self._load_hf_model()

    @property
    def device(self) -> torch.device:
        """The device of the weights."""
        return self.runner.device

    @property
    def dtype(self) -> torch.dtype:
        """The number type of computations."""
        return self.runner.dtype

    @property
    def threads(self) -> int:
        """CPU threads of a forward pass."""
        return torch.get_num_threads()

    @cached_property
    def parameter_count(self) -> int:
        """Number of parameters, vision tower included."""
        return sum(parameter.numel() for parameter in self.network.parameters())

    @cached_property
    def weights_digest(self) -> bytes:
        """Digest of the weights (specdec.models.digest)."""
        return weights_digest(self.network)

    @property
    def tokens(self) -> Mapping[int, str]:
        """All tokens that the model can produce, by id. The tokenizer may have more, such as an added padding token
        without a row in the embedding.
        """
        return tokens_of(self.tokenizer, self.vocab_size)

    @cached_property
    def vocabulary_fingerprint(self) -> bytes:
        """8 bytes that are equal for two models exactly when their vocabularies (`tokens`) are equal."""
        return fingerprint(self.tokens)

    def encode(self, prompt: Prompt, seen: Sequence[SeenPicture] | None = None) -> EncodedPrompt:
        """Prepare a prompt for this model. Raises ModelError for ids or images that it cannot take.

        seen: the results of `look` for the prompt's pictures, which are then not decoded again.
        """
        if not prompt.ids:
            raise ModelError("the prompt is empty: give at least one token")
        if min(prompt.ids) < 0 or max(prompt.ids) >= self.vocab_size:
            raise ModelError(f"the prompt has ids outside the vocabulary of {self.vocab_size} of {self.name}")
        if not self.is_multimodal:
            if prompt.images:
                raise ModelError(f"{self.name} takes no images: {self._no_pictures}")
            ids = torch.tensor(prompt.ids)
            self._check_length(ids.shape[0])
            return EncodedPrompt(ids)
        assert self.image_pad_id is not None
        if not prompt.images:
            if self.image_pad_id in prompt.ids:
                raise ModelError("the prompt has an image placeholder but no image: send both or neither")
            self._check_length(len(prompt.ids))
            return EncodedPrompt(torch.tensor(prompt.ids))
        self._check_length(self.prompt_length(prompt))  # before any picture is decoded
        if self._library_pictures is not None:
            encoded = self._library_pictures.encode(prompt.ids, prompt.images, seen)
            self._check_length(encoded.ids.shape[0])
            return encoded
        assert isinstance(self._preparer, ImagePreparer)
        prepared = self._preparer.prepare(prompt.images) if seen is None else None
        grids = prepared.grids if prepared is not None else tuple(picture.grid for picture in seen or ())
        try:
            expanded, starts = expand_image_pads(prompt.ids, self.image_pad_id, grids, self._preparer.merge)
        except ValueError as error:
            raise ModelError(f"the prompt has {error}: put one placeholder where each image goes") from error
        self._check_length(len(expanded))
        positions, delta = mrope_positions(expanded, self.image_pad_id, grids, self._preparer.merge)
        ids, rows = torch.tensor(expanded), torch.tensor(grids)
        if prepared is not None:
            return EncodedPrompt(ids, positions, delta, prepared.pixel_values, rows, None, starts)
        features = torch.cat([picture.features for picture in seen or ()])
        return EncodedPrompt(ids, positions, delta, None, rows, features, starts)

    def decode(self, image: bytes) -> PreparedImages:
        """Decode and prepare one picture for the vision tower. Thread-safe. Raises ModelError for data that is no
        picture, or if the model takes none.
        """
        if self._preparer is None:
            raise ModelError(f"{self.name} takes no images: {self._no_pictures}")
        return self._preparer.prepare([image])

    def open_soon(self, image: bytes) -> Ticket[Image.Image] | None:
        """Decode and resize one picture in a worker, for `decode_opened`; None if there are no workers."""
        return None if self._preparer is None else self._preparer.open_soon(image)

    def decode_opened(self, image: Image.Image) -> PreparedImages:
        """As `decode`, for a picture that is opened already."""
        assert self._preparer is not None, "it was opened"
        return self._preparer.prepare_opened([image])

    @torch.inference_mode()
    def look(self, pictures: Sequence[PreparedImages]) -> list[SeenPicture]:
        """Encode pictures with the vision tower: in one pass, or one by one for a deterministic model. A model on the
        library's forward pass encodes them later, with the prompt.
        """
        if self._library_pictures is not None:
            return self._library_pictures.look(pictures)
        if self.deterministic and len(pictures) > 1:
            return [seen for one in pictures for seen in self.look([one])]
        grids = [grid for prepared in pictures for grid in prepared.grids]
        patches = [prepared.pixel_values for prepared in pictures]
        pixels = patches[0] if len(patches) == 1 else torch.cat(patches)
        assert isinstance(self._preparer, ImagePreparer)
        tokens = [image_token_count(grid, self._preparer.merge) for grid in grids]
        features = torch.split(self._features(pixels, torch.tensor(grids)), tokens)
        # Copies, because each is cached and evicted separately.
        return [SeenPicture(grid, rows.clone()) for grid, rows in zip(grids, features, strict=True)]

    @property
    def picture_rules(self) -> PictureRules | None:
        """How the model resizes pictures; None if it takes none."""
        return None if self._preparer is None else self._preparer.rules

    def prompt_length(self, prompt: Prompt) -> int:
        """How many tokens a prompt takes; images are counted from their headers. Raises ModelError for unusable images.
        """
        rules, length = self.picture_rules, len(prompt.ids)
        if prompt.images and rules is None:
            raise ModelError(f"{self.name} takes no images: {self._no_pictures}")
        if rules is not None:  # one placeholder per image is counted already
            length += sum(rules.tokens(*picture_size(data)) - 1 for data in prompt.images)
        return length

    def grammar(self, text: str) -> AnyGrammar | None:
        """Compile a grammar (see `GenerationOptions.grammar`) for this model's vocabulary; None for an empty text.

        Raises OptionsError for an invalid or too large grammar, ModelError if the model cannot follow grammars.
        """
        if not text:
            return None
        return self.grammars.compile(text)

    def grammar_soon(self, text: str) -> Soon[AnyGrammar]:
        """As `grammar`, for a non-empty text and without waiting: a future if the model is isolated."""
        soon: Soon[AnyGrammar] = self.grammars.compile_soon(text)  # type: ignore[assignment]
        return soon

    @property
    def is_isolated(self) -> bool:
        """Whether `isolate` was called."""
        return isinstance(self.grammars, IsolatedGrammars)

    def isolate(self, launcher: Launcher) -> IsolatedGrammars:
        """Compile and follow grammars, and decode pictures, in workers from now on: for untrusted input."""
        grammars = IsolatedGrammars(launcher, self.tokenizer, self.vocab_size, self.eos_token_ids)
        self.grammars = grammars
        if self._preparer is not None:
            self._preparer.workers = PictureWorkers(launcher).start
        return grammars

    def new_session(self) -> ModelSession:
        """An empty session; any number of them may be interleaved on this model."""
        return ModelSession(self) if self.family is not None else GenericSession(self)

    def embed_prompt(self, encoded: EncodedPrompt) -> Tensor:
        """Embeddings [n, hidden_size] of a prompt, with image features in place of placeholders; wider if the features
        are wider (see _features).
        """
        ids = encoded.ids.to(self.device)
        hidden = self.runner.embed(ids)
        features = encoded.features
        if encoded.pixel_values is not None and encoded.grids is not None:
            features = self._features(encoded.pixel_values, encoded.grids)
        if features is not None:
            hidden = F.pad(hidden, (0, features.shape[1] - hidden.shape[1]))
            hidden[ids == self.image_pad_id] = features.to(hidden.dtype)
        return hidden

    def _features(self, pixel_values: Tensor, grids: Tensor) -> Tensor:
        """Features [tokens of all pictures, hidden_size]. pixel_values [patches, features], grids int64 [images, 3].

        With deepstack, the inputs of the n first layers are appended: [tokens, hidden_size * (1 + n)].
        """
        if self._recorded_tower is not None:
            return self._recorded_tower(pixel_values, [(int(t), int(h), int(w)) for t, h, w in grids.tolist()])
        found = self.network.get_image_features(
            pixel_values.to(self.device), image_grid_thw=grids.to(self.device)
        )
        features = torch.cat(list(found.pooler_output))
        assert self.family is not None
        if not self.family.deepstack:
            return features
        return torch.cat([features, *(torch.cat(list(layer)) for layer in found.deepstack_features)], dim=1)

    def _check_length(self, length: int) -> None:
        if length >= self.context_limit:
            raise ModelError(
                f"the prompt has {length} tokens and {self.name} takes {self.context_limit} "
                "with the answer: shorten it"
            )

    def _placeholder_ids(self) -> frozenset[int]:
        """Ids that stand for pictures, which must never be drafted."""
        if self._library_pictures is not None:
            return frozenset(i for i in self._library_pictures.never_drafted if i < self.vocab_size)
        if not self.is_multimodal:
            return frozenset()
        config = self.network.config
        ids = {
            config.image_token_id,
            config.video_token_id,
            config.vision_start_token_id,
            config.vision_end_token_id,
        }
        ids.add(self.tokenizer.get_vocab().get("<|vision_pad|>"))
        return frozenset(i for i in ids if i is not None and 0 <= i < self.vocab_size)


_RECORDED_AHEAD = 32
"""Rows of the largest forward pass that is recorded in advance."""


def record_forwards(model: LoadedModel) -> None:
    """Record the usual sizes of a model's static path. Only the calling thread may replay them afterwards.

    Does nothing for a model without a static path (see specdec.models.static). Call in torch's inference mode.
    """
    static = model.runner.static
    if static is not None:
        static.claim()
        static.warm_up(model.runner.new_cache(_RECORDED_AHEAD), _RECORDED_AHEAD)


def tokens_of(tokenizer: Any, rows: int | None = None) -> dict[int, str]:
    """A tokenizer's tokens by id. rows: only those with a row in an embedding of this size."""
    known: dict[str, int] = tokenizer.get_vocab()
    return {index: token for token, index in known.items() if rows is None or index < rows}


def fingerprint(tokens: Mapping[int, str]) -> bytes:
    """8 bytes that are equal for two vocabularies (text by id) exactly when the vocabularies are equal."""
    digest = hashlib.sha256()
    for index in sorted(tokens):
        digest.update(f"{index}\0{tokens[index]}\n".encode("utf-8", "surrogatepass"))
    return digest.digest()[:8]


def speaks(model: LoadedModel, vocabulary: bytes) -> bool:
    """Whether a fingerprint matches a model's vocabulary. Earlier versions included tokens without a row in the
    embedding; peers and logs may still use such fingerprints.
    """
    if vocabulary == model.vocabulary_fingerprint:
        return True
    whole = tokens_of(model.tokenizer)
    return max(whole) >= model.vocab_size and vocabulary == fingerprint(whole)


def first_difference(one: LoadedModel, other: LoadedModel) -> str:
    """Describe the first token in which the vocabularies of two models differ."""
    mine, theirs = one.tokens, other.tokens
    for index in sorted(mine.keys() | theirs.keys()):
        if mine.get(index) != theirs.get(index):
            said = [f"{known[index]!r:.60}" if index in known else "missing" for known in (mine, theirs)]
            return f"token {index} is {said[0]} in {one.path} and {said[1]} in {other.path}"
    return f"{len(mine)} and {len(theirs)} tokens"


def real_vocabulary_size(tokenizer: Any) -> int:
    """The tokenizer's largest id + 1; rows of the embedding beyond it are padding."""
    ids: dict[str, int] = tokenizer.get_vocab()
    return max(ids.values()) + 1
