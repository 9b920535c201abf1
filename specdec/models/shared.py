# SPDX-License-Identifier: Apache-2.0
"""Drafts that store only layers of their own: embeddings, LM head, tokenizer and layers that are the target's are read
from its folder whenever the draft is loaded.

A small draft consists mostly of embeddings: for three layers with SmolLM2's embeddings, 57 of 78 MB. The folder of such
a draft lacks these tensors and has a FILE with the target's name and the digests of the shared tensors. Loading accepts
no other tensors: a missing or different target is a ModelError. The verifier's target does not matter: a draft trained
on a fine-tuned target continues to share with the target it was created with.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import msgspec
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from specdec.downloads import models_folder
from specdec.errors import DECODE_ERRORS, ModelError, first_line

FILE = "shared.json"
_LAYER = re.compile(r"\.layers\.(\d+)\.")
_INDEX, _WEIGHTS = "model.safetensors.index.json", "model.safetensors"


class SharedMetadata(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The content of FILE. target: a name in `models_folder`, a folder (relative to the draft's parent folder), or a
    hub id. sha256: digest of each shared tensor (see `digest`) by its name in the draft. layers: the target's number of
    each of the draft's layers, if they differ.
    """

    target: str
    sha256: dict[str, str]
    layers: tuple[int, ...] = ()

    def name_in_target(self, name: str) -> str:
        """The target's name of a tensor of the draft. Raises IndexError for a layer that `layers` does not have."""
        if not self.layers:
            return name
        return _LAYER.sub(lambda found: f".layers.{self.layers[int(found[1])]}.", name, count=1)


@dataclass(frozen=True)
class Shared:
    """The tensors that the draft in `folder` shares with the target in `target`."""

    folder: Path
    target: Path
    about: SharedMetadata

    @cached_property
    def files(self) -> dict[str, tuple[Path, str]]:
        """The target's file and name for each shared tensor. Raises ModelError unless all digests match."""
        try:
            names = {name: self.about.name_in_target(name) for name in self.about.sha256}
        except IndexError as error:
            raise ModelError(
                f"{self.folder / FILE} names fewer layers than it shares: copy the folder again"
            ) from error
        found = {name: (self.target / _file_of(self.target, there), there) for name, there in names.items()}
        for name, (file, there) in found.items():
            if digest(_read(file, there)) != self.about.sha256[name]:
                raise ModelError(
                    f"{self.folder} was made for another target than {self.target}: its {there} differs; "
                    f"give the target it was made for ({self.about.target}), or train a draft for this one"
                )
        return found

    @property
    def fits(self) -> bool:
        """Whether the target's shared tensors are those that the draft was created with."""
        try:
            return bool(self.files)
        except ModelError:
            return False

    def tensors(self) -> dict[str, Tensor]:
        """The shared tensors as the target stores them. Raises ModelError."""
        return {name: _read(file, there) for name, (file, there) in self.files.items()}


def shared_of(folder: str | Path) -> Shared | None:
    """What the draft in a folder shares; None if it stores all its weights. Raises ModelError if the target is missing.
    """
    place = Path(folder)
    if not (place / FILE).is_file():
        return None
    try:
        about = msgspec.json.decode((place / FILE).read_bytes(), type=SharedMetadata)
    except (OSError, *DECODE_ERRORS) as error:
        raise ModelError(f"{place / FILE} cannot be read ({error}): copy the folder again") from error
    places = dict.fromkeys(target for target in _places(place, about.target) if (target / "config.json").is_file())
    found = [Shared(place, target, about) for target in places]
    if len(found) > 1:  # a fine-tuned target may have taken the name in one place
        return next((one for one in found if one.fits), found[0])
    if found:
        return found[0]
    raise ModelError(
        f"{place} needs weights of its target {about.target}, which is not on this machine: "
        f"run `specnav models get {Path(about.target).name}`, or put the target's folder beside the draft's"
    )


def tokenizer_folder(name: str | Path) -> str:
    """The folder or hub id of a model's tokenizer: its own, or its target's if the tokenizer is shared."""
    if (Path(name) / "tokenizer.json").is_file():
        return str(name)
    shared = shared_of(name)
    return str(name) if shared is None else str(shared.target)


def share(folder: Path, target: str, names: Iterable[str], layers: Sequence[int] = ()) -> None:
    """Write FILE into the folder of a draft that lacks the tensors `names` because it shares them.

    Args:
        folder: The draft's folder.
        target: The target's folder or hub id.
        names: Names of the shared tensors in the draft.
        layers: The target's number of each of the draft's layers; empty: the same numbers.

    Raises:
        ModelError: The target lacks one of the tensors.
    """
    place = _hub_folder(target) or Path(target)
    metadata = SharedMetadata(target, {}, () if list(layers) == list(range(len(layers))) else tuple(layers))
    for name in sorted(names):
        there = metadata.name_in_target(name)
        metadata.sha256[name] = digest(_read(place / _file_of(place, there), there))
    cached = Path(target).resolve().parent == models_folder().resolve()
    told = Path(target).name if cached else str(Path(target).resolve()) if Path(target).is_dir() else target
    metadata = msgspec.structs.replace(metadata, target=told)
    (folder / FILE).write_bytes(msgspec.json.format(msgspec.json.encode(metadata)) + b"\n")


def digest(tensor: Tensor) -> str:
    """SHA-256 of a tensor's values in float32; equal for all number types that store the values exactly."""
    return hashlib.sha256(tensor.to(torch.float32).contiguous().numpy().data).hexdigest()


def _places(folder: Path, target: str) -> list[Path]:
    """Folders that may hold the target, the likeliest first."""
    if Path(target).is_absolute():
        return [Path(target)]
    places = [folder.resolve().parent / target, models_folder().resolve() / target]
    cached = _hub_folder(target)
    return places if cached is None else [*places, cached]


def _hub_folder(target: str) -> Path | None:
    """The library's cache folder of a hub model; None if it is not cached."""
    if target.count("/") != 1 or Path(target).is_dir():
        return None
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    try:
        found = try_to_load_from_cache(target, "config.json")
    except HFValidationError:
        return None
    return Path(found).parent if isinstance(found, str) else None


def _file_of(target: Path, name: str) -> str:
    """Name of the weight file that holds a tensor."""
    index = target / _INDEX
    if not index.is_file():
        return _WEIGHTS
    try:
        return str(json.loads(index.read_text(encoding="utf-8"))["weight_map"][name])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ModelError(f"{index} has no entry for the tensor {name}: copy the target again") from error


def _read(file: Path, name: str) -> Tensor:
    try:
        with safe_open(file, framework="pt") as opened:
            tensor: Tensor = opened.get_tensor(name)
            return tensor
    except (SafetensorError, OSError) as error:
        raise ModelError(f"{file} does not give {name} ({first_line(error)}): copy the target again") from error
