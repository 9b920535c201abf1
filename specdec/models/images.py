# SPDX-License-Identifier: Apache-2.0
"""Camera images -> what Qwen2-VL's vision tower takes, without torchvision.

Uses qwen-vl-utils' `process_vision_info` where it imports and does the very same resizing where it does not,
then the library's PIL image processor. Both sides of a link must get the same pixels from the same bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from PIL import Image

from specdec.models.direct.pixels import PixelProcessor, like_library
from specdec.pictures.decoding import decode_image, open_picture
from specdec.pictures.sizes import PictureRules

if TYPE_CHECKING:
    from torch import Tensor

    from specdec.isolation.workers import Ticket
    from specdec.models.positions import Grid

MOST_PIXELS = 1280 * 28 * 28
"""Of a picture as a model sees it, where nothing says otherwise: about a megapixel, 1280 tokens of Qwen2-VL. Its own
processor lets 12.8 pass: 16,384 tokens, far more than robots wait for and most of what it was trained on.
"""


StartOpening = Callable[[bytes, int, int, int], "Ticket[Image.Image]"]
"""Takes what `open_picture` takes, and does it elsewhere (specdec.isolation)."""


@dataclass(frozen=True)
class PreparedImages:
    """images: of each its pixels uint8 [height, width, 3]. grids: (t, h, w) of the patches of each. make_patches: makes
    patches float32 [patches, channels * t * patch * patch] of an image on any device; None where `images` are what a
    processor of the library made of all of them already.
    """

    images: tuple[Tensor, ...]
    grids: tuple[Grid, ...]
    make_patches: Callable[[Tensor], Tensor] | None = None

    def patches(self, device: torch.device) -> Tensor:
        """Patches of all images on a device. They are made there: the pixels are an eighth of their size."""
        placed = [image.to(device) for image in self.images]
        made = placed if self.make_patches is None else [self.make_patches(image) for image in placed]
        return made[0] if len(made) == 1 else torch.cat(made)

    @property
    def pixel_values(self) -> Tensor:
        """Patches of all images on the CPU."""
        return self.patches(torch.device("cpu"))


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
        return None if self.workers is None else self.workers(data, self._factor, self._min_pixels, self._max_pixels)

    def prepare_opened(self, resized: Sequence[Image.Image]) -> PreparedImages:
        """The same of pictures that are decoded and resized."""
        if isinstance(self._processor, PixelProcessor):
            images, grids = zip(*(self._processor.sized(image) for image in resized), strict=True)
            return PreparedImages(images, grids, self._processor.patches)
        features = self._processor(images=list(resized), return_tensors="pt")
        grids = tuple((int(t), int(h), int(w)) for t, h, w in features["image_grid_thw"].tolist())
        return PreparedImages((features["pixel_values"],), grids)

    def _opened(self, data: bytes) -> Image.Image:
        if (opening := self.open_soon(data)) is not None:
            return opening.result()
        if self._vision_info is None:
            return open_picture(data, self._factor, self._min_pixels, self._max_pixels)
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


def find_process_vision_info() -> Callable[..., Any] | None:
    """qwen-vl-utils' process_vision_info, or None where it (or the torchvision it wants) is not installed."""
    try:
        from qwen_vl_utils import process_vision_info
    except ImportError:
        return None
    vision_info: Callable[..., Any] = process_vision_info
    return vision_info
