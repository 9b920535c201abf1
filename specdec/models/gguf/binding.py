# SPDX-License-Identifier: Apache-2.0
"""llama.cpp by its Python binding: the library found, its log kept quiet, a file loaded, a context made.

The binding is llama-cpp-python: it follows llama.cpp closely and hands out its C interface as it is, which trees and
rollback need (sequences of the KV cache). Others show only a server or a whole generation. A GGUF file is data: its
metadata is read and nothing of it is run; its chat template goes through the same sandbox as any other.
"""

from __future__ import annotations

import ctypes
import hashlib
import threading
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from specdec.errors import ModelError
from specdec.models.gguf.files import parts_of
from specdec.models.gguf.options import KV_TYPES, GgufOptions

HOW = "make setup-gguf (or: pip install llama-cpp-python)"
_ERROR = 4
"""llama.cpp's log level of errors."""
_UNUSED = 2
"""Its attribute of tokens that only fill up the vocabulary."""
_TEXT_BYTES = 1 << 16
_BLOCK_BYTES = 1 << 20
_ROWS_BY_THEMSELVES = 60
"""From 64 rows on llama.cpp attends in tiles on a CPU (GGML_FA_TILE_Q), and a row depends on those beside it."""
_CPU_FLAGS = Path("/proc/cpuinfo")


class _Log:
    """Keeps the last error line. llama.cpp says why a file cannot be loaded only there."""

    def __init__(self) -> None:
        self.error = ""
        self.callback: Any = None  # the library holds a bare pointer to it

    def write(self, level: int, text: bytes, data: object) -> None:
        line = text.decode("utf-8", "replace").strip()
        if level == _ERROR and line and "failed to load model" not in line:
            self.error = line


_LOG = _Log()
_LOADING = threading.Lock()


@cache
def library() -> Any:
    """The binding's module of C functions. Raises ModelError where it is not installed or does not load."""
    try:
        from llama_cpp import llama_cpp
    except ImportError as error:
        raise ModelError(f"a GGUF model needs llama.cpp, which is not installed here: {HOW}") from error
    except (OSError, RuntimeError) as error:  # its shared library is missing or for another machine
        raise ModelError(
            f"llama.cpp does not load here ({str(error).splitlines()[0][:160]}): {HOW}"
        ) from error
    _LOG.callback = llama_cpp.llama_log_callback(_LOG.write)
    llama_cpp.llama_log_set(_LOG.callback, ctypes.c_void_p(0))
    llama_cpp.llama_backend_init()
    return llama_cpp


def available() -> bool:
    """Whether there is a llama.cpp to run on."""
    try:
        library()
    except ModelError:
        return False
    return True


@cache
def _says_amx() -> bool:
    """Whether the processor says that it multiplies in tiles (AMX). In a virtual machine that may not be true:
    llama.cpp takes its word, and the first such instruction ends the process. So weights are not laid out for it;
    drafts are too few rows to miss it.
    """
    try:
        return "amx_tile" in _CPU_FLAGS.read_text()
    except OSError:
        return False


def state_of(path: Path) -> tuple[int, int, int]:
    """What changes when a file is written to or put in place anew. Raises ModelError."""
    try:
        found = path.stat()
    except OSError as error:
        raise ModelError(f"{path} cannot be read ({error.strerror}): give a GGUF file") from error
    return found.st_ino, found.st_size, found.st_mtime_ns


def takes_gpu() -> bool:
    """Whether this build of llama.cpp can put layers on a GPU."""
    return bool(library().llama_supports_gpu_offload())


class LlamaModel:
    """A GGUF file's weights and vocabulary. handle: llama.cpp's pointer, valid while this object lives."""

    def __init__(
        self, path: Path, gpu_layers: int = 0, vocabulary_only: bool = False, own_copy: bool = False
    ) -> None:
        """own_copy: the weights are read into memory. Otherwise they are mapped, and a file that is written to changes
        them. Raises ModelError for a file that cannot be loaded, or that changes meanwhile.
        """
        self._library = library()
        settings = self._library.llama_model_default_params()
        settings.n_gpu_layers = gpu_layers
        settings.vocab_only = vocabulary_only
        if own_copy:
            settings.load_mode = self._library.LLAMA_LOAD_MODE_NONE  # neither mapped nor locked
        if _says_amx():
            settings.use_extra_bufts = False
        self._path = path
        before = [state_of(part) for part in parts_of(path)]
        with _LOADING:
            _LOG.error = ""
            self.handle = self._library.llama_model_load_from_file(str(path).encode(), settings)
            why = _LOG.error
        if not self.handle:
            raise ModelError(
                f"{path} cannot be loaded ({_short(why)}): give a whole GGUF file of a known architecture"
            )
        if own_copy:
            _ = self.digest
        if [state_of(part) for part in parts_of(path)] != before:
            raise ModelError(
                f"{path} changed while it was loaded: wait until it is written, then start again"
            )
        self._vocabulary = self._library.llama_model_get_vocab(self.handle)
        self.rows: int = self._library.llama_vocab_n_tokens(self._vocabulary)
        if vocabulary_only:  # of the rest nothing was read, and llama.cpp ends the process that asks
            return
        if unfit := self._unfit():
            raise ModelError(f"{path} {unfit}: give a decoder with a cache that can be cut back")
        self.width: int = self._library.llama_model_n_embd(self.handle)
        self.layers: int = self._library.llama_model_n_layer(self.handle)
        self.heads: int = self._library.llama_model_n_head(self.handle)
        self.kv_heads: int = self._library.llama_model_n_head_kv(self.handle)
        length = self.metadata(f"{self.metadata('general.architecture')}.attention.key_length")
        self.head_dim = int(length) if length else self.width // self.heads
        self.made_for: int = self._library.llama_model_n_ctx_train(self.handle)
        self.parameters: int = self._library.llama_model_n_params(self.handle)

    def _unfit(self) -> str:
        """Why it cannot draft; "" where it can."""
        kinds = {
            "llama_model_is_recurrent": "is a recurrent model",
            "llama_model_is_hybrid": "has recurrent layers",
            "llama_model_is_diffusion": "is a diffusion model",
            "llama_model_has_encoder": "has an encoder",
        }
        if self.metadata(f"{self.metadata('general.architecture')}.attention.causal") == "false":
            return "looks ahead (its attention is not causal)"
        return next((words for name, words in kinds.items() if getattr(self._library, name)(self.handle)), "")

    def __del__(self) -> None:
        if getattr(self, "handle", None):
            self._library.llama_model_free(self.handle)

    @cached_property
    def digest(self) -> bytes:
        """Of all that the file holds; of one that is copied into memory as it was then."""
        found = hashlib.sha256()
        for part in parts_of(self._path):
            with part.open("rb") as file:
                while block := file.read(_BLOCK_BYTES):
                    found.update(block)
        return found.digest()

    def metadata(self, key: str) -> str:
        """A value of the file's metadata as text; empty where it has none."""
        size = _TEXT_BYTES
        while True:
            buffer = ctypes.create_string_buffer(size)
            length = self._library.llama_model_meta_val_str(self.handle, key.encode(), buffer, size)
            if length < size:
                return buffer.value.decode("utf-8", "replace") if length >= 0 else ""
            size = length + 1

    def tokens(self) -> dict[int, str]:
        """Every token's text by its id; those that only fill up are left out."""
        vocabulary, found = self._vocabulary, {}
        for token in range(self.rows):
            if self._library.llama_vocab_get_attr(vocabulary, token) & _UNUSED:
                continue
            text = self._library.llama_vocab_get_text(vocabulary, token)
            found[token] = (text or b"").decode("utf-8", "replace")
        return found

    def ends(self) -> frozenset[int]:
        """Every id that ends an answer."""
        is_end = self._library.llama_vocab_is_eog
        return frozenset(token for token in range(self.rows) if is_end(self._vocabulary, token))


def new_context(model: LlamaModel, options: GgufOptions, threads: int, tokens: int, sizes: Any) -> Any:
    """A context of `tokens` cells shared by all sequences. sizes: has `batch`, `outputs` and `sequences`, its
    limits, and `exact`.

    Raises ModelError where there is no memory for it.
    """
    lib = library()
    settings = lib.llama_context_default_params()
    settings.n_ctx = tokens
    settings.n_batch = settings.n_ubatch = sizes.batch
    settings.n_outputs_max = sizes.outputs
    settings.n_seq_max = sizes.sequences
    settings.n_threads = settings.n_threads_batch = threads
    settings.type_k = settings.type_v = KV_TYPES[options.kv]
    settings.kv_unified = True
    settings.swa_full = True  # what left a window may come back by a rollback
    settings.no_perf = True
    # On a CPU flash attention is slower from a few rows on, which a draft minds; V quantised needs it. It computes each
    # row alone, cell by cell of its own sequence: as long as those lie in order, a row depends on nothing beside it.
    on_gpu = options.gpu_layers != 0 and takes_gpu()
    # It would round keys and values of f32 to f16.
    exact = sizes.exact and options.kv != "f32"
    settings.flash_attn_type = 1 if exact else -1 if on_gpu or options.kv == "q8_0" else 0
    if exact and not on_gpu:
        settings.n_ubatch = min(sizes.batch, _ROWS_BY_THEMSELVES)
    with _LOADING:
        _LOG.error = ""
        context = lib.llama_init_from_model(model.handle, settings)
        why = _LOG.error
    if not context:
        remedy = "choose another kv" if "cache type" in why else "lower context"
        raise ModelError(
            f"llama.cpp makes no context of {tokens} tokens ({_short(why)}): {remedy} (gguf options; of a verifier "
            "kv_type, kv_gb)"
        )
    return context


def _short(line: str) -> str:
    return line[:200] or "llama.cpp does not say why"
