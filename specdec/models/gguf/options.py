# SPDX-License-Identifier: Apache-2.0
"""Options of a model on llama.cpp."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

from specdec.errors import OptionsError
from specdec.settings import parts

KV_TYPES = {"f32": 0, "f16": 1, "q8_0": 8}
"""Number types of keys and values, with llama.cpp's codes for them."""
KV_BYTES = {"f32": 4.0, "f16": 2.0, "q8_0": 34 / 32}
"""Bytes per number of each type."""
SHARED_TOKENS = 8192
"""Default size of a context; one session uses at most the length that the model was trained for."""
MOST_CONTEXT = 1 << 20
MOST_THREADS = 512


@dataclass(frozen=True)
class GgufOptions:
    """Options of a model on llama.cpp.

    Attributes:
        threads: Threads of a forward pass; 0: as many as torch uses, or 1 for a very small model.
        gpu_layers: Layers on a GPU; -1: all, if there is one.
        context: Most tokens of all sessions together; 0: 8192.
        kv: Number type of keys and values.
        mmproj: File with the vision tower; "": the one beside the model's file, if any.
    """

    threads: int = 0
    gpu_layers: int = -1
    context: int = 0
    kv: str = "f16"
    mmproj: str = ""

    def __post_init__(self) -> None:
        """Raises OptionsError for a value out of range."""
        ranges = {
            "threads": (0, MOST_THREADS),
            "gpu_layers": (-1, 1000),
            "context": (0, MOST_CONTEXT),
        }
        for name, (low, high) in ranges.items():
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
                raise OptionsError(f"gguf_{name} = {value!r} is out of range: choose {low} to {high}")
        if self.kv not in KV_TYPES:
            raise OptionsError(f"gguf_kv = {self.kv!r} is unknown: choose {', '.join(KV_TYPES)}")

    @classmethod
    def read(cls, text: str) -> GgufOptions:
        """Parse options from flags and files, like "threads=2,kv=q8_0"; "": the defaults. Raises OptionsError."""
        given: dict[str, int | str] = {}
        for part in parts(text):
            name, is_given, value = (piece.strip() for piece in part.partition("="))
            known = {one.name: one.type for one in fields(cls)}
            if name not in known or not is_given:
                raise OptionsError(f"gguf option {part!r} is unknown: give NAME=VALUE of {', '.join(known)}")
            try:
                given[name] = int(value) if known[name] == "int" else value
            except ValueError:
                raise OptionsError(f"gguf_{name} = {value!r:.80} is not a number") from None
        return cls(**given)  # type: ignore[arg-type]

    def on_cpu(self) -> GgufOptions:
        """These options without a GPU."""
        return replace(self, gpu_layers=0)
