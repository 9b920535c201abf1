# SPDX-License-Identifier: Apache-2.0
"""Loads a draft model: a Hugging Face folder or hub id, run by torch, or a GGUF file, run by llama.cpp.

Both are LoadedModels: a session takes a prompt, extends by rows, holds a tree, keeps a path and rolls back. Callers do
not depend on the engine. Single layers are accessible only in torch, so a target on llama.cpp
(cloud_verifier.engine_llamacpp) has no early exits and no layer split.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from specdec.downloads import shipped
from specdec.errors import ModelError
from specdec.models.gguf.binding import library
from specdec.models.gguf.files import check_options, gguf_file
from specdec.models.gguf.options import GgufOptions
from specdec.models.loaded import LoadedModel
from specdec.models.loading import load_model, load_tokenizer
from specdec.models.timing.row_times import time_rows
from specdec.options import ModelOptions


def load_draft(
    path: str | Path, device: str = ModelOptions.device, dtype: str = ModelOptions.dtype,
    quantize: str = ModelOptions.quantize, pixels: int = ModelOptions.pixels,
    gguf: GgufOptions | None = None, compile: bool = False,
) -> LoadedModel:  # fmt: skip
    """Load a draft model and time its forward passes by their number of rows, within a second.

    Args:
        path: A Hugging Face folder or hub id, as for `load_model`; a GGUF file; or a folder whose only weights are a
            GGUF file.
        device: As for `load_model`.
        dtype: As for `load_model`; a GGUF file defines its own number types.
        quantize: As for `load_model`; not for a GGUF file.
        pixels: As for `load_model`.
        gguf: Options of a GGUF file; None: the defaults.
        compile: As for `load_model`; torch does not compile a GGUF file.

    Returns:
        The draft model.

    Raises:
        ModelError: One line, for anything that cannot be used.
    """
    path = shipped(str(path))
    file = gguf_file(path)
    if file is None:
        check_options(path, gguf or GgufOptions())
        model = load_model(path, device, dtype, quantize, pixels, compile=compile)
    else:
        with _named(path, file):
            model = _load_gguf(file, device, pixels, gguf or GgufOptions())
    model.row_us = time_rows(model)
    return model


def load_draft_tokenizer(path: str | Path) -> Any:
    """Load only the tokenizer of a draft model.

    Args:
        path: As for `load_draft`.

    Returns:
        The tokenizer.

    Raises:
        ModelError: There is no tokenizer, or it cannot be read.
    """
    path = shipped(str(path))
    file = gguf_file(path)
    if file is None:
        return load_tokenizer(path)
    with _named(path, file):
        library()
        from specdec.models.gguf.model import load_gguf_tokenizer

        return load_gguf_tokenizer(file)


@contextmanager
def _named(name: str | Path, file: Path) -> Iterator[None]:
    """Make errors about a folder's GGUF file name the folder, whose usual weights may be missing."""
    try:
        yield
    except ModelError as error:
        if not Path(name).is_dir():
            raise
        raise ModelError(f"{name} has no weights (.safetensors), only {file.name}, and {error}") from error


def _load_gguf(file: Path, device: str, pixels: int, options: GgufOptions) -> LoadedModel:
    library()
    from specdec.models.gguf.model import load_gguf

    if device == "cpu":
        options = options.on_cpu()
    return load_gguf(file, options, pixels)
