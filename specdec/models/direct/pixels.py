# SPDX-License-Identifier: Apache-2.0
"""Pictures -> patches, like the library's image processor of Qwen2-VL without torchvision makes them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from specdec.models.direct.shapes import VisionShape, fits
from specdec.pictures.sizes import smart_resize

_PROCESSORS = ("Qwen2VLImageProcessor", "Qwen2VLImageProcessorFast", "Qwen2VLImageProcessorPil")


@dataclass(frozen=True)
class PixelProcessor:
    """size: the least and the most pixels of a resized picture, as "shortest_edge" and "longest_edge"."""

    patch_size: int
    temporal_patch_size: int
    merge_size: int
    size: dict[str, int]
    scale: float
    mean: tuple[float, ...]
    deviation: tuple[float, ...]

    def __call__(self, images: Sequence[Image.Image], return_tensors: str = "pt") -> dict[str, Tensor]:
        """RGB pictures -> "pixel_values" float32 [patches, features], "image_grid_thw" int64 [images, 3]."""
        prepared = [self._patches(image) for image in images]
        pixels = np.concatenate([patches for patches, _ in prepared])
        return {
            "pixel_values": torch.from_numpy(pixels),
            "image_grid_thw": torch.tensor([grid for _, grid in prepared]),
        }

    @cached_property
    def _normalised(self) -> NDArray[np.float32]:
        """What each of the 256 values of a channel becomes: float32 [3, 256]."""
        values = (np.arange(256, dtype=np.float64) * self.scale).astype(np.float32)[None]
        mean, deviation = (np.array(numbers, np.float32)[:, None] for numbers in (self.mean, self.deviation))
        normalised: NDArray[np.float32] = np.divide(values - mean, deviation, dtype=np.float32)
        return normalised

    def _patches(self, image: Image.Image) -> tuple[NDArray[np.float32], tuple[int, int, int]]:
        patch, merge = self.patch_size, self.merge_size
        height, width = smart_resize(
            image.height, image.width, patch * merge, self.size["shortest_edge"], self.size["longest_edge"]
        )
        if (width, height) != image.size:
            image = image.resize((width, height), Image.Resampling.BICUBIC)
        rows, columns = height // patch, width // patch
        cells = np.asarray(image).reshape(rows // merge, merge, patch, columns // merge, merge, patch, 3)
        cells = cells.transpose(0, 3, 1, 4, 6, 2, 5).reshape(rows * columns, 3, -1)
        patches = np.empty((rows * columns, 3, self.temporal_patch_size, patch * patch), np.float32)
        for channel, values in enumerate(self._normalised):
            patches[:, channel] = np.take(values, cells[:, channel])[:, None]  # a picture is a film that stands still
        return patches.reshape(rows * columns, -1), (1, rows, columns)


def pixel_processor_of(folder: Path, vision: VisionShape) -> PixelProcessor | None:
    """Of a folder's preprocessor_config.json; None unless every setting of it is known."""
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
    """What computes the same as the library's Qwen2VLImageProcessorPil, faster; None where its settings are unusual."""
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
