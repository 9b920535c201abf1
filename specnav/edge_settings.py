# SPDX-License-Identifier: Apache-2.0
"""Settings of commands that decode here: the verifier they ask, their key and their models."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from specdec.settings import setting

PAIR_THAT_SEES = "Target, draft and exits by one name: nav or qwen2-vl. Options given beside it override it."
"""Help of `pair` where models are shown pictures."""


@dataclass(frozen=True)
class EdgeSettings:
    """What commands share that decode here; each refers to these by name (`same_as`)."""

    connect: str | None = setting(
        None, "A verifier, tcp://HOST:PORT, or fleet://HOST:PORT.", metavar="ADDRESS", shown="start one here"
    )
    key: Path | None = setting(
        None, "Key for a verifier with keys (specnav keys export); with --connect.", metavar="FILE"
    )
    pair: str | None = setting(
        None,
        "Target, draft and exits by one name, as specnav models list shows them: smollm2 is downloaded when it is "
        "first used. Options given beside it override it.",
        metavar="NAME",
    )
    target_model: str | None = setting(
        None, "Target: a Hugging Face folder or hub id.", metavar="FOLDER|ID", shown="the shipped one"
    )
    draft_model: str | None = setting(
        None,
        "Draft: a Hugging Face folder or hub id, or a GGUF file.",
        metavar="FOLDER|ID|FILE",
        shown="the shipped one",
    )
    compile_draft: bool = setting(
        False, "torch compiles the layers of the draft model, where it runs on the edge."
    )
