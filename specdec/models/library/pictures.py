# SPDX-License-Identifier: Apache-2.0
"""Pictures for models on the library's own forward pass, prepared by the library's processor for the model.

As everywhere, a prompt holds one placeholder per picture. The processor supplies its expansion and the extra tensors
for the prompt's first forward pass. torchvision is needed only if the processor itself needs it.
"""

from __future__ import annotations

import copy
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from specdec.errors import ModelError, first_line
from specdec.isolation.workers import Ticket
from specdec.models.images import MOST_PIXELS, PreparedImages, SeenPicture, StartOpening
from specdec.models.prompt import EncodedPrompt
from specdec.pictures.decoding import open_picture
from specdec.pictures.sizes import PictureRules, within

_NO_CODE: dict[str, Any] = {"trust_remote_code": False}


@dataclass(frozen=True)
class LibraryRules(PictureRules):
    """Token counts of pictures, as far as the processor can tell them from the size. factor, least: 0, because the
    processor resizes by itself. most: most pixels of a picture before the processor resizes it.
    """

    processor: Any = None

    def tokens(self, width: int, height: int) -> int:
        """How many tokens a picture takes; 1 if that is known only after its preparation."""
        size = within(width, height, self.most)
        try:
            (found,) = self.processor._get_num_multimodal_tokens(image_sizes=[size[::-1]]).num_image_tokens
            return max(1, int(found))
        except Exception:  # processors raise various errors, or lack the method
            return 1


class LibraryPictures:
    """Prepares pictures for one model, with the part of ImagePreparer's interface that callers use.

    placeholder: id of a picture in a prompt. never_drafted: ids that stand for pictures or parts of them.
    """

    def __init__(self, processor: Any, config: Any, takes: Mapping[str, Any], most_pixels: int = 0) -> None:
        """takes: parameters of the model's `forward`. Raises ModelError if the processor names no placeholder."""
        tokenizer = processor.tokenizer
        self._processor = processor
        self._takes = takes
        token = getattr(processor, "image_token", None)
        ids = [] if token is None else tokenizer(str(token), add_special_tokens=False)["input_ids"]
        if len(ids) != 1:
            raise ModelError(
                f"{type(processor).__bases__[0].__name__} names no token that stands for a picture"
            )
        self._token = str(token)
        self.placeholder: int = ids[0]
        self.rules = LibraryRules(0, 0, most_pixels or MOST_PIXELS, processor)
        self.never_drafted = _stand_ins(processor, config) | {self.placeholder}
        self.workers: StartOpening | None = None

    def prepare(self, images: Sequence[bytes]) -> PreparedImages:
        """Decode one picture to uint8 [height, width, 3], scaled down to the rules' bound. Raises ModelError."""
        (data,) = images
        opening = self.open_soon(data)
        return self.prepare_opened(
            [open_picture(data, 0, 0, self.rules.most) if opening is None else opening.result()]
        )

    def open_soon(self, data: bytes) -> Ticket[Image.Image] | None:
        """As ImagePreparer.open_soon."""
        return None if self.workers is None else self.workers(data, 0, 0, self.rules.most)

    def prepare_opened(self, opened: Sequence[Image.Image]) -> PreparedImages:
        """Prepare one picture that is opened already and within the rules' bound."""
        (image,) = opened
        pixels = torch.from_numpy(np.array(image))
        return PreparedImages((pixels,), ((1, image.height, image.width),))

    def look(self, pictures: Sequence[PreparedImages]) -> list[SeenPicture]:
        """Returns the pictures as pixels: this model encodes them in the prompt's forward pass."""
        return [SeenPicture(one.grids[0], one.images[0]) for one in pictures]

    def encode(
        self, ids: Sequence[int], images: Sequence[bytes], seen: Sequence[SeenPicture] | None = None
    ) -> EncodedPrompt:
        """Encode a prompt with one placeholder per picture. seen: the pictures, if they are decoded already.

        Raises ModelError if placeholders and pictures differ in number, or the processor refuses the pictures.
        """
        if ids.count(self.placeholder) != len(images):
            raise ModelError(
                f"the prompt has {ids.count(self.placeholder)} image placeholders but {len(images)} images: "
                "put one placeholder where each image goes"
            )
        if seen is None:
            seen = self.look([self.prepare([data]) for data in images])
        inputs, standing = self._process([Image.fromarray(one.features.numpy()) for one in seen])
        expanded = self._expand(ids, standing)
        first = next((at for at, token in enumerate(expanded) if token in self.never_drafted), 0)
        starts = (first,) * len(images)  # the prompt is never split: one forward pass takes all of it
        return EncodedPrompt(
            torch.tensor(expanded), picture_starts=starts, extras=self._extras(inputs, expanded)
        )

    def _process(self, images: Sequence[Image.Image]) -> tuple[Mapping[str, Any], list[str]]:
        """The processor's tensors for the pictures of one prompt, and the text that replaces each placeholder."""
        self._processor.standing = None
        try:
            inputs = self._processor(
                images=[list(images)],
                text=[self._token * len(images)],
                add_special_tokens=False,
                return_tensors="pt",
            )
        except Exception as error:  # processors raise various errors; the cause stays attached
            raise ModelError(f"the model's processor cannot take the images ({first_line(error)})") from error
        standing = self._processor.standing
        if standing is None or len(standing) != len(images):
            raise ModelError("the model's processor does not report what replaces an image placeholder")
        return inputs, standing

    def _expand(self, ids: Sequence[int], standing: Sequence[str]) -> list[int]:
        """Replace each placeholder by the ids of its text, tokenized as the library tokenizes the whole text.

        A replacement may begin or end with ordinary text. It is then tokenized together with the adjacent text,
        provided that the adjacent ids are the library's own tokenization.
        """
        words = self._processor.tokenizer
        special = {*words.all_special_ids, *words.added_tokens_decoder, *self.never_drafted}
        remaining = iter(standing)
        expanded: list[int] = []
        at = 0
        while at < len(ids):
            if ids[at] != self.placeholder:
                expanded.append(ids[at])
                at += 1
                continue
            first = len(expanded)
            while first and expanded[first - 1] not in special:
                first -= 1
            last = at + 1
            while last < len(ids) and ids[last] not in special:
                last += 1
            before, after = expanded[first:], list(ids[at + 1 : last])
            sides = [words.decode(side) if side else "" for side in (before, after)]
            text = next(remaining)
            spelled = [
                words(side, add_special_tokens=False)["input_ids"] if side else [] for side in (*sides, text)
            ]
            if spelled[:2] == [before, after]:
                whole = words(sides[0] + text + sides[1], add_special_tokens=False)["input_ids"]
            else:
                whole = [*before, *spelled[2], *after]
            expanded[first:] = whole
            at = last
        return expanded

    def _extras(self, inputs: Mapping[str, Any], expanded: Sequence[int]) -> dict[str, Tensor]:
        """The inputs of the model's `forward` other than the ids."""
        own = ("input_ids", "attention_mask", "mm_token_type_ids", "token_type_ids")
        extras = {name: value for name, value in inputs.items() if name in self._takes and name not in own}
        told = [name for name in own[2:] if name in inputs and name in self._takes]
        if told:
            kinds = self._processor.create_mm_token_type_ids([list(expanded)])
            extras |= {name: torch.tensor(kinds) for name in told}
        return {name: torch.as_tensor(value) for name, value in extras.items()}


def pictures_of(
    name: str, config: Any, tokenizer: Any, takes: Mapping[str, Any], pixels: int
) -> LibraryPictures:
    """The picture preparation for the model in a folder or hub id.

    Raises ModelError, with a short reason, if the library has no usable processor for it.
    """
    import transformers
    from transformers.models.auto.processing_auto import PROCESSOR_MAPPING

    try:
        pixel_part = transformers.AutoImageProcessor.from_pretrained(name, backend="pil", **_NO_CODE)
        settings, _ = transformers.ProcessorMixin.get_processor_dict(name)
        named = settings.get("processor_class") or getattr(pixel_part, "_processor_class", None)
        # A model type may have several processors, so the folder's choice takes precedence.
        kind = getattr(transformers, named or "", None) or PROCESSOR_MAPPING[type(config)]
        names = kind.get_attributes()
        if "image_processor" not in names:
            raise ModelError(f"{kind.__name__} does not take single pictures")
        parts = {
            "image_processor": pixel_part,
            "tokenizer": copy.deepcopy(tokenizer),
        }  # a copy, because some processors add tokens to it
        processor = _images_only(kind).from_args_and_dict([parts.get(one) for one in names], settings)
    except ModelError:
        raise
    except Exception as error:  # the library raises nearly everything here; the cause stays attached
        raise ModelError(f"its processor cannot be created: {first_line(error)}") from error
    if not getattr(tokenizer, "chat_template", None) and getattr(processor, "chat_template", None):
        tokenizer.chat_template = processor.chat_template
    return LibraryPictures(processor, config, takes, pixels)


def probe_of(pictures: LibraryPictures) -> tuple[list[int], list[bytes]]:
    """A test prompt with a small picture: ids, pictures."""
    shade = np.arange(64, dtype=np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(np.stack(np.broadcast_arrays(shade[:, None], shade, shade[::-1]), axis=-1)).save(
        buffer, "PNG"
    )
    return [pictures.placeholder], [buffer.getvalue()]


def takes_pictures(config: Any) -> bool:
    """Whether a model with this config takes pictures, according to the library and its own `architectures`."""
    from transformers import AutoModelForImageTextToText

    mapping = AutoModelForImageTextToText._model_mapping
    if type(config) not in mapping:
        return False
    named = getattr(config, "architectures", None)
    return not named or named[0] == mapping[type(config)].__name__


def _images_only(kind: Any) -> Any:
    """A subclass of a processor class that works without the parts for video and audio (which need torchvision), and
    that stores the replacement texts of pictures in `standing`.
    """

    class ImagesOnly(kind):  # type: ignore[misc]
        standing: list[str] | None = None

        def check_argument_for_proper_class(self, argument_name: str, argument: Any) -> Any:
            return (
                None if argument is None else super().check_argument_for_proper_class(argument_name, argument)
            )

        def get_text_with_replacements(
            self, text: Any, images_replacements: Any = (), *others: Any, **more: Any
        ) -> Any:
            self.standing = list(images_replacements)
            return super().get_text_with_replacements(text, images_replacements, *others, **more)

    return ImagesOnly


def _stand_ins(processor: Any, config: Any) -> frozenset[int]:
    """Placeholder ids of pictures, video and audio, from the config and the processor."""
    named = ("image_token_id", "image_token_index", "video_token_id", "video_token_index", "audio_token_id")
    found = [getattr(config, name, None) for name in named]
    for kind in ("image_token_ids", "video_token_ids", "audio_token_ids"):
        found += list(getattr(processor, kind, None) or ())
    return frozenset(token for token in found if isinstance(token, int) and token >= 0)
