# SPDX-License-Identifier: Apache-2.0
"""Settings of commands that decode locally: the verifier's address, the key and the models."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from specdec.settings import setting

PAIR_THAT_SEES = "Target, draft and exits by one name: nav or qwen2-vl. Options given beside it override it."
"""Help of `pair` where models are shown pictures."""


@dataclass(frozen=True)
class EdgeSettings:
    """Settings shared by the commands that decode on this machine, which refer to them by name (`same_as`)."""

    connect: str | None = setting(
        None,
        "Verifier at tcp://HOST:PORT, or fleet at fleet://HOST:PORT.",
        metavar="ADDRESS",
        shown="start one here",
    )
    key: Path | None = setting(
        None,
        "Key file for a verifier that requires keys (specnav keys export); with --connect.",
        metavar="FILE",
    )
    pair: str | None = setting(
        None,
        "Target, draft and exits by one name, as specnav models list shows them; smollm2 is downloaded on first use. "
        "Other options override its models.",
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
        False, "Compile the layers of the draft model with torch, if it runs on the edge."
    )
