# SPDX-License-Identifier: Apache-2.0
"""Hands vLLM pictures that our own code has prepared: its vision tower gets bit for bit the input that ours would get.

vLLM's own preprocessing, which would resize them again, is bypassed.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import Any

from specdec.models import EncodedPrompt
from specdec.models.positions import image_token_count


def features_of(encoded: EncodedPrompt, pictures: Sequence[bytes], merge: int, salt: str | None) -> list[Any]:
    """The picture features of a vLLM request.

    Args:
        encoded: The prompt as the target encodes it.
        pictures: The encoded image files of the prompt.
        merge: Patches along each axis that become one token.
        salt: Only requests with the same salt find each other's cached pictures.
    """
    from transformers import BatchFeature
    from vllm.model_executor.models.qwen2_vl import _create_qwen2vl_field_factory
    from vllm.multimodal.inputs import MultiModalFeatureSpec, MultiModalKwargsItems, PlaceholderRange

    if encoded.pixel_values is None or encoded.grids is None:
        return []
    inputs = {"pixel_values": encoded.pixel_values, "image_grid_thw": encoded.grids}
    items = MultiModalKwargsItems.from_hf_inputs(
        BatchFeature(inputs), _create_qwen2vl_field_factory(merge)(inputs)
    )
    found = []
    for item, picture, grid, start in zip(
        items["image"], pictures, encoded.grids.tolist(), encoded.picture_starts, strict=True
    ):
        name = blake2b(picture, digest_size=16, key=(salt or "").encode()[:64]).hexdigest()
        size = image_token_count((grid[0], grid[1], grid[2]), merge)
        found.append(MultiModalFeatureSpec(item, "image", name, PlaceholderRange(start, size), name))
    return found
