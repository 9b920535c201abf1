# SPDX-License-Identifier: Apache-2.0
"""Load the early exits that belong to a target, check the draft model, and warm up before the first client."""

from __future__ import annotations

from pathlib import Path

from cloud_verifier.config import NO_EXITS, ServerConfig
from cloud_verifier.errors import VerifierError
from cloud_verifier.logs import EventLog
from specdec.errors import ModelError
from specdec.models import LoadedModel, Prompt
from specdec.models.loaded import first_difference
from specdec.models.threads import is_small
from specdec.verifying.exits import load_exits, use_exits
from specdec.verifying.exits.worth import MOST
from specdec.verifying.hints.hints import HintMaker

_TINY_MODEL_PARAMETERS = 20_000_000


def load_hint_maker(config: ServerConfig, model: LoadedModel, log: EventLog) -> HintMaker | None:
    """Make the hint maker from the configured exits, else from the exits next to the model; None without exits.

    Exits next to the model that belong to another model are ignored with a warning.

    Raises:
        ModelError: The configured folder has no exits for this model.
        OptionsError: A configured layer has no exit.
    """
    if config.exits == NO_EXITS:
        return None
    folder = Path(config.exits) if config.exits else exits_folder_of(Path(config.model))
    if folder is None:
        return None
    try:
        exits = load_exits(folder, model)
    except ModelError as error:
        if config.exits:
            raise
        log.warning("exits_left_alone", reason=str(error))
        return None
    # If a layer takes no longer than an exit, more than one exit costs more time than it saves.
    most = 1 if is_small(model) and not config.verify_ms else MOST
    layers = use_exits(exits, config.exit_layers, most)
    maker = HintMaker(exits.pick(layers))
    log.info("exits", folder=str(folder), layers=list(layers))
    return maker


def exits_folder_of(model: Path) -> Path | None:
    """The folder `NAME-exits` next to a model's folder `NAME-target`, if it is there."""
    place = model.absolute()
    if not place.is_dir() or not place.name.endswith("-target"):
        return None
    folder = place.with_name(place.name.removesuffix("target") + "exits")
    return folder if folder.is_dir() else None


def check_pair(draft_model: LoadedModel, model: LoadedModel) -> None:
    """Raise VerifierError unless both models have the same vocabulary."""
    if draft_model.vocabulary_fingerprint != model.vocabulary_fingerprint:
        raise VerifierError(
            f"draft {draft_model.path} and target {model.path} have different vocabularies "
            f"({first_difference(draft_model, model)}): use two models of one family"
        )


def forwards_are_quick(config: ServerConfig, model: LoadedModel) -> bool:
    """Whether a forward pass takes about as long as waking a thread: a tiny model on a CPU, without pacing."""
    paced = config.verify_ms or config.draft_ms
    return model.device.type == "cpu" and model.parameter_count < _TINY_MODEL_PARAMETERS and not paced


def warm_up(model: LoadedModel) -> None:
    """Run a few forward passes, so that the first client does not wait for lazy initialisation."""
    session = model.new_session()
    # A GPU loads its kernels on first use, so use a prompt long enough to load the prefill kernels.
    prompt = (0, 1, 2) if model.device.type == "cpu" else tuple(range(min(512, model.context_limit // 2)))
    session.prefill(model.encode(Prompt(prompt)))
    for rows in (1, 5):
        session.extend(range(rows))
    _ = model.vocabulary_fingerprint
