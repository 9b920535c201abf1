# SPDX-License-Identifier: Apache-2.0
"""Adapters on disk, separate from their backbone: a folder with exits.safetensors and exits.json."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec
import torch

from specdec.errors import DECODE_ERRORS, ModelError
from specdec.models.loaded import LoadedModel
from specdec.settings_files import check_regular
from specdec.verifying.exits.adapters import ExitAdapters
from specdec.verifying.exits.exits import Exits
from specdec.verifying.exits.fingerprint import Fingerprint, fingerprint
from specdec.whole_files import write_whole

SCHEMA = 1
WEIGHTS, ABOUT = "exits.safetensors", "exits.json"
NUMBERS = torch.float16
MOST_NUMBERS = 1 << 20
"""Of a layer's width: what is more was not written by us."""


class ExitsMetadata(msgspec.Struct, frozen=True):
    """The content of exits.json. agreement: top-1 agreement with the final layer, in the order of `layers`; empty if
    not measured. frequent: the target's frequent ids, most frequent first; empty if not counted.
    """

    schema: int
    layers: list[int]
    width: Annotated[int, msgspec.Meta(ge=1, le=MOST_NUMBERS)]
    hidden_size: Annotated[int, msgspec.Meta(ge=1, le=MOST_NUMBERS)]
    backbone: Fingerprint
    backbone_name: str
    agreement: list[float] = []
    frequent: list[int] = []


def save_exits(folder: Path, exits: Exits) -> None:
    """Write both files in float16 into an existing folder, exits.json last.

    Raises ModelError if a file cannot be written; its previous content is then unchanged.
    """
    from safetensors.torch import save

    weights = {name: value.to("cpu", NUMBERS) for name, value in exits.adapters.state_dict().items()}
    about = ExitsMetadata(
        SCHEMA,
        list(exits.layers),
        exits.adapters.width,
        exits.model.runner.hidden_size,
        fingerprint(exits.model),
        Path(exits.model.path).name,
        [round(exits.agreement[layer], 4) for layer in exits.layers if layer in exits.agreement],
        list(exits.frequent),
    )
    for name, data in (
        (WEIGHTS, save(weights)),
        (ABOUT, msgspec.json.format(msgspec.json.encode(about)) + b"\n"),
    ):
        try:
            write_whole(folder / name, data)
        except OSError as error:
            raise ModelError(
                f"{folder / name} cannot be written ({error.strerror or error}): make room or choose another folder"
            ) from error


def load_exits(folder: str | Path, model: LoadedModel) -> Exits:
    """Load the exits in a folder for the model they were trained for.

    Raises ModelError for a folder without usable exits, another backbone, or layers that the model lacks.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    place = Path(folder)
    if not model.runner.sees_layers:
        raise ModelError(f"{model.path} runs on transformers' own forward pass, which has no exits: leave them out")
    try:
        check_regular(place)
        about = msgspec.json.decode((place / ABOUT).read_bytes(), type=ExitsMetadata)
        weights = load_file(place / WEIGHTS)
    except OSError as error:
        raise ModelError(f"{place} holds no early exits ({error.strerror or error}): train some") from error
    except (*DECODE_ERRORS, SafetensorError) as error:
        raise ModelError(f"{place} holds no usable early exits ({error}): train them again") from error
    if about.schema != SCHEMA:
        raise ModelError(
            f"{place} has early exits of schema {about.schema}, but this version needs {SCHEMA}: train them again"
        )
    if difference := about.backbone.difference(fingerprint(model)):
        raise ModelError(
            f"the early exits in {place} belong to {about.backbone_name}, but {model.path} has {difference}: "
            "train exits for it"
        )
    adapters = ExitAdapters(len(about.layers), about.hidden_size, about.width, device="meta")
    try:
        adapters.load_state_dict(weights, assign=True)
    except RuntimeError as error:
        raise ModelError(
            f"{place} has weights that its {ABOUT} does not describe: train them again"
        ) from error
    known = about.agreement if len(about.agreement) == len(about.layers) else []
    return Exits(model, adapters, about.layers, dict(zip(about.layers, known, strict=False)), about.frequent)
