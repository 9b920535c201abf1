# SPDX-License-Identifier: Apache-2.0
"""The identity of a replica: answers that move between replicas must continue with the same tokens.

A model is identified by its files: text files completely, weights by samples spread over them, so that a hundred
gigabytes take a second. Paths do not count, as they differ between nodes.
"""

from __future__ import annotations

import json
from hashlib import blake2b
from pathlib import Path

from msgspec import Struct

from cloud_verifier.config import NO_EXITS, ServerConfig
from cloud_verifier.security.folder import KeyFolder

SAMPLES, SAMPLE_BYTES = 64, 64 * 1024
_WHOLE = (".json", ".jinja", ".txt", ".model")
_MOST_WHOLE_BYTES = 64 << 20
_DIGEST = 12
SETTINGS = (
    "engine", "dtype", "quantize", "pixels", "kv_type", "gpu_layers", "tensor_parallel", "device", "deterministic"
)  # fmt: skip
"""Settings that change a model's numbers."""


class Identity(Struct, frozen=True):
    """What is compared, each as a short hash; "" if absent. key: the server's public key."""

    model: str
    vocabulary: str
    exits: str
    draft: str
    settings: str
    key: str

    @property
    def digest(self) -> bytes:
        """A digest of all fields, 16 bytes."""
        parts = (self.model, self.vocabulary, self.exits, self.draft, self.settings, self.key)
        return blake2b("\n".join(parts).encode(), digest_size=16).digest()


def differences(one: Identity, other: Identity) -> str:
    """How `other` differs, in words; "" if it does not."""
    words = {
        "vocabulary": "different vocabulary",
        "model": "different model",
        "exits": "different early exits",
        "draft": "different draft model",
        "settings": f"different settings ({', '.join(SETTINGS[:-1])} or {SETTINGS[-1]})",
        "key": "different server key",
    }
    return ", ".join(text for name, text in words.items() if getattr(one, name) != getattr(other, name))


def identity_of(config: ServerConfig) -> Identity:
    """The identity of a verifier with these settings, from the files on this machine."""
    model = folder_of(config.model)
    exits = config.exits
    if not exits and model.name.endswith("-target"):
        exits = str(model.with_name(model.name.removesuffix("-target") + "-exits"))
    settings = [getattr(config, name) for name in SETTINGS]
    public = KeyFolder(config.keys).server_key().public if config.keys else ""
    return Identity(
        model=_hash_of(model),
        vocabulary=_hash_of(model / "tokenizer.json"),
        exits=_hash_of(Path(exits)) + config.exit_layers if exits and exits != NO_EXITS else "",
        draft=_hash_of(folder_of(config.draft_model)) if config.draft_model else "",
        settings=_short(json.dumps(settings).encode()),
        key=_short(public.encode()) if public else "",
    )


def folder_of(model: str) -> Path:
    """The path of a model: its folder or file, or the hub cache's folder of an id."""
    path = Path(model)
    if path.exists():
        return path.resolve()
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(model, local_files_only=True))
    except Exception:  # any error about a missing model: the verifier reports it better
        return path


def _hash_of(path: Path) -> str:
    """Digest of a file, or of all files of a folder; "" if it does not exist."""
    if path.is_file():
        return _short(_sampled(path))
    if not path.is_dir():
        return ""
    hasher = blake2b(digest_size=_DIGEST)
    for file in sorted(path.rglob("*")):
        if file.is_file() and (file.suffix in _WHOLE or file.suffix in (".safetensors", ".gguf", ".npz", ".pt")):
            hasher.update(f"{file.relative_to(path)}\n".encode() + _sampled(file))
    return hasher.hexdigest()


def _sampled(file: Path) -> bytes:
    """Digest of a file: of its whole content if it is short or text, otherwise of its size and of samples
    spread over it.
    """
    size = file.stat().st_size
    hasher = blake2b(str(size).encode(), digest_size=_DIGEST)
    whole = size <= SAMPLES * SAMPLE_BYTES or (file.suffix in _WHOLE and size <= _MOST_WHOLE_BYTES)
    with open(file, "rb") as data:
        if whole:
            hasher.update(data.read())
        for place in range(0 if whole else SAMPLES):
            data.seek((size - SAMPLE_BYTES) * place // (SAMPLES - 1))
            hasher.update(data.read(SAMPLE_BYTES))
    return hasher.digest()


def _short(data: bytes) -> str:
    return blake2b(data, digest_size=_DIGEST).hexdigest()
