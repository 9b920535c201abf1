# SPDX-License-Identifier: Apache-2.0
"""Pictures for vLLM as our own preparation makes them: what its vision tower gets is what ours would get, to the bit.

So vLLM's own way from a picture to patches, which sizes it once more, is not gone.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import Any

from specdec.models import EncodedPrompt
from specdec.models.positions import image_token_count


def features_of(encoded: EncodedPrompt, pictures: Sequence[bytes], merge: int, salt: str | None) -> list[Any]:
    """What a request of vLLM carries for the pictures of a prompt. merge: patches that become a token, each way.

    salt: what vLLM has made of a picture is found again by requests of the same one alone.
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
