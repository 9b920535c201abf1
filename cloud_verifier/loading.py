# SPDX-License-Identifier: Apache-2.0
"""What a verifier loads beside its target, and how it is made ready before the first client."""

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
    """What makes hints, of the exits that were named or else of those beside the model; None where there are none.

    Raises ModelError for a named folder without exits of this model, OptionsError for layers without one. Exits
    beside the model that are not its own are left alone, with a warning.
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
    # Where a layer takes no longer than an exit does, the most that pays is one.
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
    """Raise VerifierError unless both models have one vocabulary."""
    if draft_model.vocabulary_fingerprint != model.vocabulary_fingerprint:
        raise VerifierError(
            f"draft {draft_model.path} and target {model.path} have different vocabularies "
            f"({first_difference(draft_model, model)}): use two models of one family"
        )


def forwards_are_quick(config: ServerConfig, model: LoadedModel) -> bool:
    """Whether a forward takes about as long as waking a thread: a tiny model, not paced."""
    paced = config.verify_ms or config.draft_ms
    return model.device.type == "cpu" and model.parameter_count < _TINY_MODEL_PARAMETERS and not paced


def warm_up(model: LoadedModel) -> None:
    """One small answer, so that the first client does not pay for lazy initialisation."""
    session = model.new_session()
    # A GPU loads its kernels when they are first used: those of a prompt, too.
    prompt = (0, 1, 2) if model.device.type == "cpu" else tuple(range(min(512, model.context_limit // 2)))
    session.prefill(model.encode(Prompt(prompt)))
    for rows in (1, 5):
        session.extend(range(rows))
    _ = model.vocabulary_fingerprint
