# SPDX-License-Identifier: Apache-2.0
"""What makes two replicas the same: an answer that goes on at another replica must get the same tokens.

A model is known by its files: those with words whole, weights by samples that are spread over them, so that a hundred
gigabytes take a second. Paths do not count: they differ from node to node.
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


class Identity(Struct, frozen=True):
    """What is compared, each as a short hash; "" where there is none. key: of the server's public key."""

    model: str
    vocabulary: str
    exits: str
    draft: str
    settings: str
    key: str

    @property
    def digest(self) -> bytes:
        """All of it, 16 bytes."""
        parts = (self.model, self.vocabulary, self.exits, self.draft, self.settings, self.key)
        return blake2b("\n".join(parts).encode(), digest_size=16).digest()


def differences(one: Identity, other: Identity) -> str:
    """What `other` has differently, in words; "" for nothing."""
    words = {
        "vocabulary": "another vocabulary",
        "model": "another model",
        "exits": "other early exits",
        "draft": "another draft model",
        "settings": "other settings (engine, dtype, quantize, pixels or deterministic)",
        "key": "another server key",
    }
    return ", ".join(text for name, text in words.items() if getattr(one, name) != getattr(other, name))


def identity_of(config: ServerConfig) -> Identity:
    """Of a verifier with these settings, by what lies on this machine."""
    model = folder_of(config.model)
    exits = config.exits
    if not exits and model.name.endswith("-target"):
        exits = str(model.with_name(model.name.removesuffix("-target") + "-exits"))
    settings = [config.engine, config.dtype, config.quantize, config.pixels, config.deterministic, config.device]
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
    """Where a model lies: its folder or file, or what the hub's cache has of an id."""
    path = Path(model)
    if path.exists():
        return path.resolve()
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(model, local_files_only=True))
    except Exception:  # whatever it raises for what is not there: the verifier says it better
        return path


def _hash_of(path: Path) -> str:
    """Of a file, or of all files of a folder; "" where there is nothing."""
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
    """A digest of a file: whole if it is short or in words, otherwise of its size and of samples spread over it."""
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
