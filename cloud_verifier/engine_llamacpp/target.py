# SPDX-License-Identifier: Apache-2.0
"""Loads a llama.cpp target from a server's settings, with a context that fits the allowed memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch

from cloud_verifier.config import NO_EXITS, ServerConfig, refuse_settings
from cloud_verifier.engine.memory import SHARE, TREE_TOKENS, free_bytes
from cloud_verifier.errors import VerifierError
from cloud_verifier.logs import EventLog
from specdec.models.gguf.binding import LlamaModel, takes_gpu
from specdec.models.gguf.decoder import Sizes
from specdec.models.gguf.files import check_file, gguf_file
from specdec.models.gguf.model import GgufModel, load_gguf
from specdec.models.gguf.options import KV_BYTES, MOST_CONTEXT, GgufOptions

MOST_SEQUENCES = 256
"""Most sequences of a context (LLAMA_MAX_SEQ of llama.cpp)."""
BRANCHES = 64
"""Sequences for the branches of trees, if that many are left."""
_Q8_BLOCK = 32
_TOKENS = 16_384
"""Most tokens of the context, unless --kv-gb sets it or the model was made for more. All are allocated at start."""
_ROUNDED_TO = 256
"""llama.cpp rounds the size of a context to a multiple of this many tokens."""


def load_target(config: ServerConfig, log: EventLog) -> GgufModel:
    """Load the target. Raises VerifierError or ModelError with one line."""
    refuse_what_is_not_done(config)
    path = gguf_file(config.model) or gguf_beside(Path(config.model))
    if path is None:
        raise VerifierError(
            f"--engine llamacpp needs a GGUF file, got {config.model}: make one with `specnav convert gguf FOLDER`"
        )
    options = GgufOptions(
        threads=config.threads, gpu_layers=0 if config.device == "cpu" else config.gpu_layers
    )
    if options.gpu_layers > 0 and not takes_gpu():
        log.warning(
            "no_gpu",
            reason=f"--gpu-layers {options.gpu_layers}: this llama.cpp cannot use a GPU, all layers run on the CPU",
        )
    options = replace(options, kv=kv_type(config, options, path))
    target = load_gguf(path, options, config.pixels, lambda model: fit(config, options, model))
    log.info(
        "llamacpp",
        tokens=target.cache_bytes // target.runner.kv_bytes_a_token,
        kv_mb=target.cache_bytes >> 20,
        kv_type=options.kv,
        threads=target.threads,
        gpu=options.gpu_layers != 0 and takes_gpu(),
    )
    if not getattr(target.tokenizer, "chat_template", None):
        log.warning(
            "no_chat_template",
            reason=f"{path} has no chat template: edges format prompts with their draft's template",
        )
    return target


def kv_type(config: ServerConfig, options: GgufOptions, path: Path) -> str:
    """The number type of keys and values.

    On a CPU, llama.cpp computes attention over q8_0 row by row in the order of the cells. An answer is then the same
    however its tokens share forward passes, as long as its cells are in order. One session alone keeps that order; with
    several sessions, one may take cells that another has freed.
    """
    if config.kv_type != "auto":
        return config.kv_type
    if options.gpu_layers and takes_gpu():
        return "f16"
    return "q8_0" if _head_dim(path) % _Q8_BLOCK == 0 else "f16"


def _head_dim(path: Path) -> int:
    check_file(path)
    model = LlamaModel(path, vocabulary_only=True)
    architecture = model.metadata("general.architecture")
    length = model.metadata(f"{architecture}.attention.key_length")
    if length:
        return int(length)
    width, heads = (
        int(model.metadata(f"{architecture}.{name}") or 1)
        for name in ("embedding_length", "attention.head_count")
    )
    return width // heads


def gguf_beside(folder: Path) -> Path | None:
    """The only GGUF file in a Hugging Face folder (`gguf_file` takes such a folder for its own weights)."""
    found = [file for file in folder.glob("*.gguf") if "mmproj" not in file.name] if folder.is_dir() else []
    return found[0] if len(found) == 1 else None


def fit(
    config: ServerConfig,
    options: GgufOptions,
    model: LlamaModel,
    free: Callable[[], int] = lambda: free_bytes(torch.device("cpu")),
) -> tuple[int, Sizes]:
    """The tokens of the context and the sizes of a call. --kv-gb bounds the cache and what attention needs with it.

    Raises VerifierError if not even a short answer fits, if the memory is not free (llama.cpp allocates all of it at
    start), or if there are too many sessions.
    """
    if config.max_sessions >= MOST_SEQUENCES:
        raise VerifierError(
            f"--max-sessions must be below {MOST_SEQUENCES} with --engine llamacpp, got {config.max_sessions}"
        )
    sequences = min(MOST_SEQUENCES, config.max_sessions + BRANCHES)
    rows = min(config.forward_rows, 512)
    sizes = Sizes(
        max(rows, sequences), max(rows, sequences), sequences, sequences - config.max_sessions, exact=True
    )
    asked = int(config.kv_gb * 2**30)
    each = bytes_a_token(model, options, sizes.batch)
    tokens = (asked or int(SHARE * free())) // each
    tokens = min(tokens if asked else min(tokens, max(_TOKENS, model.made_for + TREE_TOKENS)), MOST_CONTEXT)
    tokens = tokens // _ROUNDED_TO * _ROUNDED_TO
    on_gpu = options.gpu_layers != 0 and takes_gpu()
    if asked and not on_gpu and tokens * each > free():
        raise VerifierError(
            f"--kv-gb {config.kv_gb:g}: llama.cpp would take {tokens * each / 2**30:.1f} GiB when it starts, and "
            f"{free() / 2**30:.1f} GiB are free: lower it"
        )
    if not tokens:
        raise VerifierError(
            f"--kv-gb must leave room for {_ROUNDED_TO} tokens of {each / 1e3:.0f} kB, got "
            f"{(asked or free()) / 2**30:.3g} GiB: raise it, or lower --forward-rows or --max-sessions"
        )
    return tokens, sizes


def bytes_a_token(model: LlamaModel, options: GgufOptions, rows: int) -> int:
    """Memory per token of the context: keys, values and a column of a call's mask; in f32, where attention is not
    fused, also a column of its scores.
    """
    cache = model.layers * 2 * model.kv_heads * model.head_dim * KV_BYTES[options.kv]
    return int(cache) + 4 * rows * (1 + (model.heads if options.kv == "f32" else 0))


def refuse_what_is_not_done(config: ServerConfig) -> None:
    """Raise VerifierError for settings that only our own engine supports."""
    asked = {
        "--quantize": config.quantize != "none",
        "--dtype": config.dtype != "auto",
        "--exits": config.exits not in ("", NO_EXITS),
        "--deterministic": config.deterministic,
        "--compile": config.compile,
        "--device": config.device not in ("auto", "cpu"),
    }
    refuse_settings("llamacpp", asked)
