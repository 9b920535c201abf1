# SPDX-License-Identifier: Apache-2.0
"""The settings of a draft on llama.cpp."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

from specdec.errors import OptionsError
from specdec.settings import parts

KV_TYPES = {"f32": 0, "f16": 1, "q8_0": 8}
"""Number types of keys and values, and llama.cpp's numbers for them."""
KV_BYTES = {"f32": 4.0, "f16": 2.0, "q8_0": 34 / 32}
"""What a number takes."""
SHARED_TOKENS = 8192
"""Of a context where nothing says otherwise; a session takes what the model was made for at most."""
MOST_CONTEXT = 1 << 20
MOST_THREADS = 512


@dataclass(frozen=True)
class GgufOptions:
    """threads: of a forward, 0: as many as torch takes. gpu_layers: put on a GPU, -1: all where there is one. context:
    tokens that all sessions of the model hold together, 0: 8192. kv: number type of keys and values. mmproj: file with
    the vision tower, "": the one beside the model's, if there is one.
    """

    threads: int = 0
    gpu_layers: int = -1
    context: int = 0
    kv: str = "f16"
    mmproj: str = ""

    def __post_init__(self) -> None:
        """Raises OptionsError for what cannot be."""
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
        """Options as flags and files say them: "threads=2,kv=q8_0", "" for none. Raises OptionsError."""
        given: dict[str, int | str] = {}
        for part in parts(text):
            name, is_given, value = (piece.strip() for piece in part.partition("="))
            known = {one.name: one.type for one in fields(cls)}
            if name not in known or not is_given:
                raise OptionsError(f"gguf option {part!r} is unknown: give NAME=VALUE of {', '.join(known)}")
            if known[name] == "int" and not value.lstrip("-").isdecimal():
                raise OptionsError(f"gguf_{name} = {value!r} is not a number")
            given[name] = int(value) if known[name] == "int" else value
        return cls(**given)  # type: ignore[arg-type]

    def on_cpu(self) -> GgufOptions:
        """The same without a GPU."""
        return replace(self, gpu_layers=0)
