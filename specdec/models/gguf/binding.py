# SPDX-License-Identifier: Apache-2.0
"""llama.cpp through its Python binding: finds the library, silences its log, loads files, creates contexts.

The binding is llama-cpp-python. It follows llama.cpp closely and exposes its plain C interface, which trees and
rollback need (sequences of the KV cache). Other bindings offer only a server or complete generations. A GGUF file is
treated as data: its metadata is read, none of it is executed, and its chat template is rendered in the usual sandbox.
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
"""llama.cpp's log level for errors."""
_UNUSED = 2
"""llama.cpp's attribute of tokens that only pad the vocabulary."""
_TEXT_BYTES = 1 << 16
_BLOCK_BYTES = 1 << 20
_ROWS_BY_THEMSELVES = 60
"""Most rows whose results are independent on a CPU: from 64 rows on, llama.cpp attends in tiles (GGML_FA_TILE_Q)."""
_CPU_FLAGS = Path("/proc/cpuinfo")


class _Log:
    """Keeps the last error line. llama.cpp reports only there why a file cannot be loaded."""

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
    """The binding's module of C functions. Raises ModelError if it is not installed or does not load."""
    try:
        from llama_cpp import llama_cpp
    except ImportError as error:
        raise ModelError(f"a GGUF model needs llama.cpp, which is not installed here: {HOW}") from error
    except (OSError, RuntimeError) as error:  # its shared library is missing or built for another machine
        raise ModelError(
            f"llama.cpp does not load here ({str(error).splitlines()[0][:160]}): {HOW}"
        ) from error
    _LOG.callback = llama_cpp.llama_log_callback(_LOG.write)
    llama_cpp.llama_log_set(_LOG.callback, ctypes.c_void_p(0))
    llama_cpp.llama_backend_init()
    return llama_cpp


def available() -> bool:
    """Whether llama.cpp is installed and loads."""
    try:
        library()
    except ModelError:
        return False
    return True


@cache
def _says_amx() -> bool:
    """Whether the processor reports AMX. In a virtual machine the report may be false: llama.cpp trusts it, and the
    first AMX instruction then kills the process. So the weights' AMX layout is disabled; drafts have too few rows to
    benefit from it.
    """
    try:
        return "amx_tile" in _CPU_FLAGS.read_text()
    except OSError:
        return False


def state_of(path: Path) -> tuple[int, int, int]:
    """Inode, size and modification time, which change when a file is written or replaced. Raises ModelError."""
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
        """own_copy: read the weights into memory. Otherwise the file is mapped, and writing to it would change the
        weights. Raises ModelError for a file that cannot be loaded, or that changes meanwhile.
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
        if vocabulary_only:  # the rest is not loaded, and llama.cpp aborts the process on access
            return
        if unfit := self._unfit():
            raise ModelError(f"{path} {unfit}: give a decoder with a cache that can be cropped")
        self.width: int = self._library.llama_model_n_embd(self.handle)
        self.layers: int = self._library.llama_model_n_layer(self.handle)
        self.heads: int = self._library.llama_model_n_head(self.handle)
        self.kv_heads: int = self._library.llama_model_n_head_kv(self.handle)
        length = self.metadata(f"{self.metadata('general.architecture')}.attention.key_length")
        self.head_dim = int(length) if length else self.width // self.heads
        self.made_for: int = self._library.llama_model_n_ctx_train(self.handle)
        self.parameters: int = self._library.llama_model_n_params(self.handle)

    def _unfit(self) -> str:
        """Why the model cannot draft; "" if it can."""
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
        """Digest of the whole file; if the weights were copied into memory, computed at that time."""
        found = hashlib.sha256()
        for part in parts_of(self._path):
            with part.open("rb") as file:
                while block := file.read(_BLOCK_BYTES):
                    found.update(block)
        return found.digest()

    def metadata(self, key: str) -> str:
        """A value of the file's metadata as text; empty if the key is missing."""
        size = _TEXT_BYTES
        while True:
            buffer = ctypes.create_string_buffer(size)
            length = self._library.llama_model_meta_val_str(self.handle, key.encode(), buffer, size)
            if length < size:
                return buffer.value.decode("utf-8", "replace") if length >= 0 else ""
            size = length + 1

    def tokens(self) -> dict[int, str]:
        """All tokens by id, without padding tokens."""
        vocabulary, found = self._vocabulary, {}
        for token in range(self.rows):
            if self._library.llama_vocab_get_attr(vocabulary, token) & _UNUSED:
                continue
            text = self._library.llama_vocab_get_text(vocabulary, token)
            found[token] = (text or b"").decode("utf-8", "replace")
        return found

    def ends(self) -> frozenset[int]:
        """All ids that end an answer."""
        is_end = self._library.llama_vocab_is_eog
        return frozenset(token for token in range(self.rows) if is_end(self._vocabulary, token))


def new_context(model: LlamaModel, options: GgufOptions, threads: int, tokens: int, sizes: Any) -> Any:
    """Create a context with `tokens` cells shared by all sequences. sizes: a `decoder.Sizes`.

    Raises ModelError if llama.cpp cannot create it, for example for lack of memory.
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
    settings.swa_full = True  # a rollback may need tokens that had left a window
    settings.no_perf = True
    # On a CPU flash attention is slower from a few rows on, which matters for drafts; a quantised V needs it. It
    # computes each row alone, over the cells of its own sequence: while those are in order, rows are independent.
    on_gpu = options.gpu_layers != 0 and takes_gpu()
    # It would round f32 keys and values to f16.
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
            f"llama.cpp cannot create a context of {tokens} tokens ({_short(why)}): {remedy} (gguf options; for a "
            "verifier kv_type, kv_gb)"
        )
    return context


def _short(line: str) -> str:
    return line[:200] or "llama.cpp gives no reason"
