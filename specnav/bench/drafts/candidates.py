"""From `--draft-backends` and `--draft-models` to the drafts that are compared."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from specdec.models.gguf.files import gguf_file
from specnav.errors import UsageError

TORCH, GGUF = "torch", "gguf"
TORCH_KINDS = ("none", "8bit", "4bit")
GGUF_KINDS = ("f16", "q8_0", "q4_0")
"""Number types that a folder is converted to where none is named."""


@dataclass(frozen=True)
class Candidate:
    """One draft as it is run. kind: a number type; of torch "none", "8bit" or "4bit" (bitsandbytes). convert: the
    folder that a GGUF file is to be made from, None where `model` is there already.
    """

    label: str
    backend: str
    kind: str
    model: Path
    convert: Path | None = None

    @property
    def slug(self) -> str:
        """A name for a folder."""
        return "".join(letter if letter.isalnum() or letter in "-_" else "-" for letter in self.label)


def candidates_of(backends: str | None, models: str | None, default: str, work: Path) -> list[Candidate]:
    """backends: "torch,gguf", each also with a number type ("torch:8bit", "gguf:q4_0"); None: both. models: folders and
    GGUF files by commas, None: the default. work: where files that are made on the way go. Raises UsageError.
    """
    asked = [_backend(word) for word in _words(backends) or [TORCH, GGUF]]
    found: list[Candidate] = []
    for name in _words(models) or [default]:
        path = Path(name)
        file = gguf_file(path)
        if not (path.exists() if file is None else file.is_file()):
            raise UsageError(f"draft model {name} does not exist: give Hugging Face folders or GGUF files")
        for backend, kind in asked:
            found += _of(path, file, backend, kind, work)
    if not found:
        raise UsageError("no draft is left to compare: a GGUF file runs on gguf, a folder on torch or gguf")
    return list(dict.fromkeys(found))


def _of(path: Path, file: Path | None, backend: str, kind: str, work: Path) -> list[Candidate]:
    if file is not None:
        return [Candidate(f"gguf {file.stem}", GGUF, "as is", file)] if backend == GGUF and not kind else []
    name = path.resolve().name
    if backend == TORCH:
        label = f"torch {name}" + f" {kind}" * (kind not in ("", "none"))
        return [Candidate(label, TORCH, kind or "none", path)]
    return [
        Candidate(f"gguf {name} {one}", GGUF, one, work / f"{name}-{one}.gguf", path)
        for one in ((kind,) if kind else GGUF_KINDS)
    ]


def make_files(candidates: list[Candidate]) -> None:
    """Make the GGUF files that are missing. Raises UsageError or ModelError."""
    from specnav.convert.run import ConvertConfig, run_convert

    for one in candidates:
        if one.convert is not None and not one.model.is_file():
            one.model.parent.mkdir(parents=True, exist_ok=True)
            run_convert(ConvertConfig(one.convert, one.kind, one.model))


def _backend(word: str) -> tuple[str, str]:
    backend, _, kind = word.partition(":")
    if backend not in (TORCH, GGUF):
        raise UsageError(f"--draft-backends {word!r} is unknown: choose torch, gguf, torch:8bit, gguf:q4_0 ...")
    if backend == TORCH and kind and kind not in TORCH_KINDS:
        raise UsageError(f"--draft-backends {word!r}: torch takes {', '.join(TORCH_KINDS)}")
    return backend, kind


def _words(given: str | None) -> list[str]:
    return [word.strip() for word in (given or "").split(",") if word.strip()]
