# SPDX-License-Identifier: Apache-2.0
"""A short digest of a target's weights: an answer must continue with the model it began with.

Every weight counts, but no copy is made: the bits of each tensor are summed row by row on its device, and a sample of
them is hashed.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import torch
from torch import Tensor, nn

DIGEST_BYTES = 16
_SAMPLED = 1024
_FILE_SAMPLES, _FILE_SAMPLE_BYTES = 64, 4096
_BITS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


@torch.inference_mode()
def weights_digest(network: nn.Module) -> bytes:
    """Digest of a loaded model. Equal for equal weights in equal number types, whatever folder they came from."""
    found = hashlib.sha256()
    for name, tensor in sorted(network.state_dict().items()):
        if isinstance(tensor, Tensor) and tensor.numel():
            found.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}".encode())
            found.update(_digest(tensor))
    return found.digest()[:DIGEST_BYTES]


def _digest(tensor: Tensor) -> bytes:
    rows = tensor.detach().contiguous().reshape(max(1, len(tensor) if tensor.dim() else 1), -1)
    bits = rows.view(_BITS[tensor.element_size()])
    sums = bits.sum(dim=1, dtype=torch.int64)
    weighted = (sums * torch.arange(1, len(sums) + 1, device=sums.device)).sum()
    flat = bits.reshape(-1)
    sample = flat[:: max(1, flat.numel() // _SAMPLED)].cpu().numpy().tobytes()
    return int(weighted).to_bytes(8, "little", signed=True) + sample


def files_digest(folder: Path) -> bytes:
    """Digest of a folder's weight files without loading them, from their sizes and samples; empty without files."""
    files = sorted(folder.glob("*.safetensors")) if folder.is_dir() else []
    found = hashlib.sha256()
    for file in files:
        size = file.stat().st_size
        found.update(f"{file.name} {size}".encode())
        with file.open("rb") as opened:
            for place in range(0, size, max(1, size // _FILE_SAMPLES)):
                opened.seek(place)
                found.update(opened.read(_FILE_SAMPLE_BYTES))
    return found.digest()[:DIGEST_BYTES] if files else b""
