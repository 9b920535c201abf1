# SPDX-License-Identifier: Apache-2.0
"""`--pair NAME`: target, draft and exits of a pair as the paths that commands take elsewhere."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from specnav.errors import UsageError
from specnav.published.getting import get_model
from specnav.published.table import MODELS, PAIRS, Packaged

NO_EXITS = "none"
LOOKUP_METHOD = "ngram"
"""What drafts where a pair has no draft model on this machine."""


@dataclass(frozen=True)
class Pair:
    """target, draft: folders or hub ids. draft: "" where none is there. exits: a folder, or NO_EXITS. gguf: the target
    as a GGUF file, None where there is none.
    """

    name: str
    target: str
    draft: str
    exits: str
    gguf: Path | None = None

    def served_by(self, engine: str) -> tuple[str, str]:
        """Target and exits as a verifier on this engine takes them."""
        if engine == "llamacpp" and self.gguf is not None:
            return str(self.gguf), NO_EXITS
        return self.target, self.exits

    def tells_no_draft(self, instead: str) -> str:
        """One line about a draft that is not there."""
        return f"pair {self.name} has no draft model on this machine: {instead}"


def pair_named(name: str) -> Pair:
    """The pair; a target that is not on this machine yet is downloaded. Raises UsageError."""
    if name not in PAIRS:
        raise UsageError(f"pair {name!r} is unknown: choose one of {', '.join(PAIRS)}")
    names = PAIRS[name]
    gguf = None
    target = str(names.target)
    if isinstance(names.target, str):
        source = MODELS[names.target].source
        target = source if isinstance(source, str) else str(get_model(names.target))
        gguf = Path(target) / source.file if isinstance(source, Packaged) else None
    if isinstance(names.draft, str):
        told = MODELS[names.draft].source
        draft = told if isinstance(told, str) else str(get_model(names.draft))
    else:
        draft = str(names.draft) if (names.draft / "config.json").is_file() else ""
    has_exits = names.exits is not None and names.exits.is_dir()
    return Pair(name, target, draft, str(names.exits) if has_exits else NO_EXITS, gguf)
