"""The transformers library's own logits, as a reference."""

from __future__ import annotations

import torch

from specdec.models import LoadedModel, Prompt

TOLERANCE = 3e-5


def library_logits(model: LoadedModel, prompt: Prompt, answer: list[int]) -> torch.Tensor:
    """Logits [len(answer) + 1, vocab] of one uncached forward of the library over prompt + answer."""
    encoded = model.encode(prompt)
    ids = torch.cat([encoded.ids, torch.tensor(answer, dtype=torch.long)])[None]
    extra = {}
    if encoded.pixel_values is not None:
        kinds = torch.zeros_like(ids, dtype=torch.int)
        kinds[0, : encoded.ids.shape[0]] = (encoded.ids == model.image_pad_id).int()
        extra = {
            "pixel_values": encoded.pixel_values,
            "image_grid_thw": encoded.grids,
            "mm_token_type_ids": kinds,
        }
    with torch.no_grad():
        logits = model.hf_model(input_ids=ids, **extra).logits[0]
    return logits[encoded.ids.shape[0] - 1 :, : model.vocab_size]


def assert_close(ours: torch.Tensor, theirs: torch.Tensor) -> None:
    assert ours.shape == theirs.shape
    assert float((ours - theirs).abs().max()) < TOLERANCE
