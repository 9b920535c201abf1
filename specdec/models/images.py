# SPDX-License-Identifier: Apache-2.0
"""Camera images -> inputs of Qwen2-VL's vision tower, without torchvision.

Resizes with qwen-vl-utils' `process_vision_info` if it is installed and with identical code otherwise, then uses the
library's PIL image processor. Both sides of a link must get equal pixels from equal bytes.
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
"""Default bound on a picture's pixels: about a megapixel, 1280 tokens of Qwen2-VL. The model's own processor allows
12.8 megapixels, or 16,384 tokens. That is far more than a robot can wait for, and most of the context it was trained
on.
"""
_MOST_LATE = 1280 * 720
"""Most pixels of a picture that is resized on the GPU, because of the memory it takes there: about 120 bytes per pixel.
"""
StartOpening = Callable[[bytes, int, int, int], "Ticket[Image.Image]"]
"""An asynchronous `open_picture` with the same arguments (specdec.isolation)."""


@dataclass(frozen=True)
class PreparedImages:
    """Pictures ready for the vision tower.

    images: pixels of each, uint8 [height, width, 3], an eighth of the size of patches. grids: patch grid (t, h, w) of
    each. make_patches: computes patches from an image's pixels and grid; None if `images` holds the output of a library
    processor for all pictures.
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
    """One picture after the vision tower. grid: patch grid (t, h, w). features: [tokens, hidden_size]."""

    grid: Grid
    features: Tensor


class ImagePreparer:
    """The image half of Qwen2-VL's processor, built from a model folder."""

    def __init__(
        self, processor: Any, vision_info: Callable[..., Any] | None = None, most_pixels: int = 0
    ) -> None:
        """most_pixels: larger pictures are scaled down; 0: MOST_PIXELS, or the processor's own bound if that is less.
        """
        self._processor = processor
        self._vision_info = vision_info
        self.merge: int = processor.merge_size
        self._factor: int = processor.patch_size * processor.merge_size
        self._patch: int = processor.patch_size
        self._min_pixels: int = processor.size["shortest_edge"]
        own: int = processor.size["longest_edge"]
        self._max_pixels = max(self._factor**2, self._min_pixels, most_pixels or min(own, MOST_PIXELS))
        processor.size["longest_edge"] = self._max_pixels  # it resizes its input once more
        self.rules = PictureRules(self._factor, self._min_pixels, self._max_pixels)
        self.workers: StartOpening | None = None
        self._device = torch.device("cpu")
        self._resizes_late = False

    def move_to(self, device: torch.device) -> None:
        """Resize pictures and make patches on a GPU from now on, with the same values as on a CPU.

        One picture is tried. If that fails or gives other values, pictures stay on the CPU, and a warning is logged.
        """
        if not isinstance(self._processor, PixelProcessor):
            return
        try:
            agrees, reason = _agrees(self._processor, device), "patches differ from the CPU's"
        except Exception as error:  # drivers fail in many ways; the CPU path still works
            agrees, reason = False, first_line(error)
        if agrees:
            self._device, self._resizes_late = device, True
        else:
            _LOG.warning("pictures are prepared on the CPU instead of %s (%s)", device, reason)

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
        """Prepare encoded images (JPEG, PNG) for the tower. Raises ModelError for bytes that are not an image."""
        return self.prepare_opened([self._opened(data) for data in images])

    def open_soon(self, data: bytes) -> Ticket[Image.Image] | None:
        """Open a picture in a worker; None if pictures are opened in this process."""
        return None if self.workers is None else self.workers(data, *self._opening(data))

    def _opening(self, data: bytes) -> tuple[int, int, int]:
        """The size arguments of `open_picture` for a picture. Large pictures are always resized when opened."""
        if self._resizes_late and math.prod(picture_size(data)) <= _MOST_LATE:
            return 0, 0, _MOST_LATE
        return self._factor, self._min_pixels, self._max_pixels

    def prepare_opened(self, opened: Sequence[Image.Image]) -> PreparedImages:
        """Prepare pictures that are opened already."""
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
    """Whether a small noise picture gives the same patches on a device as on the CPU with Pillow's resizing."""
    side = processor.patch_size * processor.merge_size
    noise = np.random.default_rng(0).integers(0, 2, (5 * side - 3, 4 * side + 3, 3), dtype=np.uint8) * np.uint8(255)
    image = Image.fromarray(noise)
    (here, grid), (there, _) = processor.pixels(image), processor.pixels(image, resized=False)
    return torch.equal(processor.patches(there.to(device), grid).cpu(), processor.patches(here, grid))


def find_process_vision_info() -> Callable[..., Any] | None:
    """qwen-vl-utils' process_vision_info, or None if it (or torchvision, which it needs) is not installed."""
    try:
        from qwen_vl_utils import process_vision_info
    except ImportError:
        return None
    vision_info: Callable[..., Any] = process_vision_info
    return vision_info
