# Copyright 2026 spec_vlm_nav maintainers
#
# Licensed under the Apache License, Version 2.0 (the "License");
# you may not use this file except in compliance with the License.
# You may obtain a copy of the License at
#
#     http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS,
# WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
# See the License for the specific language governing permissions and
# limitations under the License.

"""
Finds the model that a parameter names, and its kind, without loading it.

A relative name is looked up in the package's share folder, never in the working directory: a
parameter must mean the same model wherever the node is started.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from spec_vlm_nav.common.errors import one_line, ParameterError

PACKAGE = "spec_vlm_nav"
LARGE_VOCABULARY = 50_000  # ids: a published Qwen2-VL has 151,936, the small trained models 672
GGUF = ".gguf"
UNTUNED, TRAINED = "qwen2_vl", "tiny_nav"  # prompt presets


def share_folder() -> Path:
    """Return the package's share folder, or its source folder if it is not installed."""
    try:
        from ament_index_python.packages import get_package_share_directory, PackageNotFoundError
    except ImportError:
        return _source_folder()
    try:
        return Path(get_package_share_directory(PACKAGE))
    except (PackageNotFoundError, LookupError, OSError):  # OSError: ROS is not sourced
        return _source_folder()


def _source_folder() -> Path:
    return Path(__file__).resolve().parents[2]


def find_model(name: str) -> str:
    """
    Return the folder or GGUF file that a parameter names, or the hub id unchanged.

    Raises ParameterError for a missing folder and for an ambiguous name.
    """
    try:
        return _find_model(name, one_line(name))
    except OSError as error:  # a name too long, a folder that is not to be read
        raise ParameterError(f"model '{one_line(name)}': {error.strerror}") from error


def _find_model(name: str, shown: str) -> str:
    try:
        path = Path(name).expanduser()
    except RuntimeError as error:
        raise ParameterError(f"model '{shown}': {error}") from error
    if path.is_absolute():
        if not _may_be_model(path):
            what = "file" if path.suffix == GGUF else "folder"
            raise ParameterError(f"model {what} {one_line(str(path))} does not exist")
        return str(path)
    inside = share_folder() / name
    if name and _may_be_model(inside):
        return str(inside)
    if name.startswith((".", "~")) or name.count("/") != 1 or name.endswith("/"):
        raise ParameterError(
            f"model '{shown}' is neither a folder in {share_folder()}, nor an absolute path, nor a "
            "hub id like org/name; folders are never looked for in the working directory"
        )
    if Path(name).is_dir():
        raise ParameterError(
            f"model '{shown}' could be a hub id or the folder {Path(name).resolve()}: give the "
            "absolute path, or start the node in another directory"
        )
    if name.split("/")[0] == "default_models":
        raise ParameterError(
            f"model '{shown}' is not in {share_folder()}: it is part of the whole repository, not "
            "of the package alone; give an absolute path or a hub id"
        )
    return name


def _may_be_model(path: Path) -> bool:
    return path.is_file() if path.suffix == GGUF else path.is_dir()


def folder_of(model: str) -> str:
    """Return the folder that contains a GGUF file; any other model unchanged."""
    path = Path(model)
    return str(path.parent) if path.suffix == GGUF else model


def read_config(folder: str) -> dict[str, Any]:
    """Return the content of a folder's config.json; {} if it cannot be read, or for a hub id."""
    try:
        said = json.loads((Path(folder) / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return said if isinstance(said, dict) else {}


def suited_preset(folder: str) -> str:
    """
    Return the prompt preset for a model without its own nav_prompt.json.

    A model with the large vocabulary of a published one was not trained on the short prompt of the
    small models. A hub id counts as a published model.
    """
    config = read_config(folder)
    text = config.get("text_config") or {}
    size = text.get("vocab_size") or config.get("vocab_size") or LARGE_VOCABULARY
    return UNTUNED if not isinstance(size, int) or size >= LARGE_VOCABULARY else TRAINED


def check_folder(folder: str, needs_weights: bool = True) -> None:
    """Raise ParameterError if a folder's file names show that it is not a complete model."""
    try:
        _check_folder(Path(folder), needs_weights)
    except OSError as error:
        raise ParameterError(f"model '{one_line(folder)}': {error.strerror}") from error


def _check_folder(folder: Path, needs_weights: bool) -> None:
    if not folder.is_dir():
        return  # a hub id
    if not (folder / "config.json").is_file() and not any(folder.glob(f"*{GGUF}")):
        raise ParameterError(f"{folder} has no config.json: it is not a Hugging Face model folder")
    if needs_weights and not any(
        file.suffix in (".safetensors", ".bin", ".gguf") for file in folder.iterdir()
    ):
        raise ParameterError(f"{folder} has no weights: no .safetensors, .bin or .gguf file")
