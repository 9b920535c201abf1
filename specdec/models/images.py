# SPDX-License-Identifier: Apache-2.0
"""Camera images -> what Qwen2-VL's vision tower takes, without torchvision.

Uses qwen-vl-utils' `process_vision_info` where it imports and does the very same resizing where it does not,
then the library's PIL image processor. Both sides of a link must get the same pixels from the same bytes.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from PIL import Image

from specdec.errors import first_line
from specdec.models.direct.pixels import PixelProcessor, like_library
from specdec.pictures.decoding import decode_image, open_picture
from specdec.pictures.sizes import PictureRules, picture_size

if TYPE_CHECKING:
    from torch import Tensor

    from specdec.isolation.workers import Ticket
    from specdec.models.positions import Grid

_LOG = logging.getLogger("specdec.models")
MOST_PIXELS = 1280 * 28 * 28
"""Of a picture as a model sees it, where nothing says otherwise: about a megapixel, 1280 tokens of Qwen2-VL. Its own
processor lets 12.8 pass: 16,384 tokens, far more than robots wait for and most of what it was trained on.
"""
_MOST_LATE = 1280 * 720
"""Pixels of a picture that is resized late, for the memory that it takes of a GPU: about 120 bytes a pixel."""
StartOpening = Callable[[bytes, int, int, int], "Ticket[Image.Image]"]
"""Takes what `open_picture` takes, and does it elsewhere (specdec.isolation)."""


@dataclass(frozen=True)
class PreparedImages:
    """images: of each its pixels uint8 [height, width, 3], an eighth of what patches take. grids: (t, h, w) of the
    patches of each. make_patches: makes them of the pixels and the grid of an image; None where `images` are what a
    library's processor made of all.
    """

    images: tuple[Tensor, ...]
    grids: tuple[Grid, ...]
    make_patches: Callable[[Tensor, Grid], Tensor] | None = None

    @property
    def pixel_values(self) -> Tensor:
        """Patches of all images, float32 [patches, channels * t * patch * patch], on the preparer's device."""
        made = self.images
        if self.make_patches is not None:
            made = tuple(self.make_patches(*one) for one in zip(self.images, self.grids, strict=True))
        return made[0] if len(made) == 1 else torch.cat(made)


@dataclass(frozen=True)
class SeenPicture:
    """What a model has made of one picture. grid: (t, h, w) of its patches. features: [tokens, hidden_size]."""

    grid: Grid
    features: Tensor


class ImagePreparer:
    """The image half of Qwen2-VL's processor, built from a model folder."""

    def __init__(
        self, processor: Any, vision_info: Callable[..., Any] | None = None, most_pixels: int = 0
    ) -> None:
        """most_pixels: of a picture, larger ones are scaled down; 0: MOST_PIXELS, or the processor's own if less."""
        self._processor = processor
        self._vision_info = vision_info
        self.merge: int = processor.merge_size
        self._factor: int = processor.patch_size * processor.merge_size
        self._patch: int = processor.patch_size
        self._min_pixels: int = processor.size["shortest_edge"]
        own: int = processor.size["longest_edge"]
        self._max_pixels = max(self._factor**2, self._min_pixels, most_pixels or min(own, MOST_PIXELS))
        processor.size["longest_edge"] = self._max_pixels  # it sizes what it gets once more
        self.rules = PictureRules(self._factor, self._min_pixels, self._max_pixels)
        self.workers: StartOpening | None = None
        self._device = torch.device("cpu")
        self._resizes_late = False

    def move_to(self, device: torch.device) -> None:
        """Resize pictures and make patches of them on a GPU from now on; their values stay what they are on a CPU.

        One picture is tried there. Where that fails or gives other values, pictures stay on the CPU, with one line in
        the log.
        """
        if not isinstance(self._processor, PixelProcessor):
            return
        try:
            agrees, reason = _agrees(self._processor, device), "patches differ from the CPU's"
        except Exception as error:  # drivers fail in many ways; on the CPU pictures stay right
            agrees, reason = False, first_line(error)
        if agrees:
            self._device, self._resizes_late = device, True
        else:
            _LOG.warning("pictures are prepared on the CPU and not on %s (%s)", device, reason)

    @classmethod
    def from_folder(cls, path: str, vision_config: Any, most_pixels: int = 0) -> ImagePreparer:
        """Read preprocessor_config.json (or processor_config.json) of a local folder or hub id."""
        from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

        folder = Path(path)
        known = ("preprocessor_config.json", "processor_config.json")
        if folder.is_dir() and not any((folder / name).exists() for name in known):
            processor = Qwen2VLImageProcessorPil(
                patch_size=vision_config.patch_size,
                temporal_patch_size=vision_config.temporal_patch_size,
                merge_size=vision_config.spatial_merge_size,
            )
        else:
            processor = Qwen2VLImageProcessorPil.from_pretrained(path)
        return cls(like_library(processor) or processor, find_process_vision_info(), most_pixels)

    def prepare(self, images: Sequence[bytes]) -> PreparedImages:
        """Encoded images (JPEG, PNG) -> what the tower takes. Raises ModelError for bytes that are not an image."""
        return self.prepare_opened([self._opened(data) for data in images])

    def open_soon(self, data: bytes) -> Ticket[Image.Image] | None:
        """A picture opened by the workers that pictures go to; None where they are opened here."""
        return None if self.workers is None else self.workers(data, *self._opening(data))

    def _opening(self, data: bytes) -> tuple[int, int, int]:
        """What `open_picture` is told of a picture. One whose pixels are many is always resized as it is opened."""
        if self._resizes_late and math.prod(picture_size(data)) <= _MOST_LATE:
            return 0, 0, _MOST_LATE
        return self._factor, self._min_pixels, self._max_pixels

    def prepare_opened(self, opened: Sequence[Image.Image]) -> PreparedImages:
        """The same of pictures that are opened."""
        if isinstance(self._processor, PixelProcessor):
            made = [self._processor.pixels(image, not self._resizes_late) for image in opened]
            images, grids = zip(*made, strict=True)
            return PreparedImages(images, grids, self._patches)
        features = self._processor(images=list(opened), return_tensors="pt")
        grids = tuple((int(t), int(h), int(w)) for t, h, w in features["image_grid_thw"].tolist())
        return PreparedImages((features["pixel_values"],), grids)

    def _patches(self, pixels: Tensor, grid: Grid) -> Tensor:
        patches: Tensor = self._processor.patches(pixels.to(self._device), grid)
        return patches

    def _opened(self, data: bytes) -> Image.Image:
        if (opening := self.open_soon(data)) is not None:
            return opening.result()
        if self._vision_info is None or self._resizes_late:
            return open_picture(data, *self._opening(data))
        element = {
            "type": "image",
            "image": decode_image(data),
            "min_pixels": self._min_pixels,
            "max_pixels": self._max_pixels,
        }
        messages = [{"role": "user", "content": [element]}]
        images, _ = self._vision_info(messages, image_patch_size=self._patch)
        fetched: Image.Image = images[0]
        return fetched


def _agrees(processor: PixelProcessor, device: torch.device) -> bool:
    """Whether a small picture of noise becomes the same patches on a device as here, where Pillow resizes it."""
    side = processor.patch_size * processor.merge_size
    noise = np.random.default_rng(0).integers(0, 2, (5 * side - 3, 4 * side + 3, 3), dtype=np.uint8) * np.uint8(255)
    image = Image.fromarray(noise)
    (here, grid), (there, _) = processor.pixels(image), processor.pixels(image, resized=False)
    return torch.equal(processor.patches(there.to(device), grid).cpu(), processor.patches(here, grid))


def find_process_vision_info() -> Callable[..., Any] | None:
    """qwen-vl-utils' process_vision_info, or None where it (or the torchvision it wants) is not installed."""
    try:
        from qwen_vl_utils import process_vision_info
    except ImportError:
        return None
    vision_info: Callable[..., Any] = process_vision_info
    return vision_info
