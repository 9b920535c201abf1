# SPDX-License-Identifier: Apache-2.0
"""Pictures -> patches, equal to those of the library's Qwen2-VL image processor without torchvision."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from specdec.models.direct.resizing import resize
from specdec.models.direct.shapes import VisionShape, fits
from specdec.models.positions import Grid
from specdec.pictures.sizes import smart_resize

_PROCESSORS = ("Qwen2VLImageProcessor", "Qwen2VLImageProcessorFast", "Qwen2VLImageProcessorPil")


@dataclass(frozen=True)
class PixelProcessor:
    """Resizes and normalises pictures. size: least and most pixels of a resized picture, under the library's names
    "shortest_edge" and "longest_edge".
    """

    patch_size: int
    temporal_patch_size: int
    merge_size: int
    size: dict[str, int]
    scale: float
    mean: tuple[float, ...]
    deviation: tuple[float, ...]

    def pixels(self, image: Image.Image, resized: bool = True) -> tuple[Tensor, Grid]:
        """An RGB picture -> its pixels uint8 [height, width, 3], and the grid of its patches.

        resized: resize to the final size now; False: `patches` resizes.
        """
        height, width = smart_resize(
            image.height,
            image.width,
            self.patch_size * self.merge_size,
            self.size["shortest_edge"],
            self.size["longest_edge"],
        )
        if resized and (width, height) != image.size:
            image = image.resize((width, height), Image.Resampling.BICUBIC)
        return torch.from_numpy(np.array(image)), (1, height // self.patch_size, width // self.patch_size)

    def patches(self, pixels: Tensor, grid: Grid) -> Tensor:
        """The result of `pixels` -> float32 [patches, features] on the pixels' device, equal on all devices."""
        patch, merge = self.patch_size, self.merge_size
        _, rows, columns = grid
        pixels = resize(pixels, rows * patch, columns * patch)
        table = self._normalised.to(pixels.device)
        channels = torch.arange(0, table.numel(), 256, dtype=torch.int32, device=pixels.device)
        cells = (pixels + channels).view(rows // merge, merge, patch, columns // merge, merge, patch, 3)
        values = table.index_select(0, cells.permute(0, 3, 1, 4, 6, 2, 5).flatten())
        still = values.view(rows * columns, 3, 1, patch * patch)  # all frames of a still picture are equal
        return still.expand(-1, -1, self.temporal_patch_size, -1).reshape(rows * columns, -1)

    @cached_property
    def _normalised(self) -> Tensor:
        """Lookup table from the 256 byte values of each channel to normalised values: float32 [3 * 256]."""
        values = (np.arange(256, dtype=np.float64) * self.scale).astype(np.float32)[None]
        mean, deviation = (np.array(numbers, np.float32)[:, None] for numbers in (self.mean, self.deviation))
        return torch.from_numpy(np.divide(values - mean, deviation, dtype=np.float32)).flatten()


def pixel_processor_of(folder: Path, vision: VisionShape) -> PixelProcessor | None:
    """The processor that preprocessor_config.json describes; None unless all its settings are known."""
    config: dict[str, Any] = json.loads((folder / "preprocessor_config.json").read_text(encoding="utf-8"))
    needed = {
        "image_mean": list,
        "image_std": list,
        "image_processor_type": str,
        "rescale_factor": float,
        "size": dict,
    }
    fixed = {
        "do_convert_rgb": True,
        "do_normalize": True,
        "do_rescale": True,
        "do_resize": True,
        "merge_size": vision.spatial_merge_size,
        "patch_size": vision.patch_size,
        "processor_class": "Qwen2VLProcessor",
        "resample": int(Image.Resampling.BICUBIC),
        "temporal_patch_size": vision.temporal_patch_size,
    }
    edges = {"shortest_edge": int, "longest_edge": int}
    if (
        not fits(config, needed, fixed)
        or not fits(config["size"], edges, {})
        or config["image_processor_type"] not in _PROCESSORS
        or not set(fixed) - {"processor_class"} <= set(config)
        or not len(config["image_mean"]) == len(config["image_std"]) == vision.in_channels == 3
    ):
        return None
    return PixelProcessor(
        vision.patch_size,
        vision.temporal_patch_size,
        vision.spatial_merge_size,
        config["size"],
        config["rescale_factor"],
        tuple(config["image_mean"]),
        tuple(config["image_std"]),
    )


def like_library(processor: Any) -> PixelProcessor | None:
    """A faster equivalent of the library's Qwen2VLImageProcessorPil; None if its settings are unusual."""
    usual = processor.do_resize and processor.do_rescale and processor.do_normalize and processor.do_convert_rgb
    if not usual or int(processor.resample) != int(Image.Resampling.BICUBIC):
        return None
    mean, deviation = processor.image_mean, processor.image_std
    if not isinstance(mean, (list, tuple)) or not len(mean) == len(deviation) == 3:
        return None
    size = {name: processor.size[name] for name in ("shortest_edge", "longest_edge")}
    return PixelProcessor(
        processor.patch_size, processor.temporal_patch_size, processor.merge_size, size,
        processor.rescale_factor, tuple(mean), tuple(deviation),
    )  # fmt: skip
