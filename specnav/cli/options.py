"""Options that several commands share where they declare their own: each as the settings class has it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from specdec.options import DecodingOptions, GenerationOptions, ModelOptions
from specnav.cli.from_settings import option_of
from specnav.edge_settings import EdgeSettings

METRICS = "127.0.0.1:9464"
"""Where commands and documents expect a verifier's --metrics; 9090 is where Prometheus itself listens."""
SHIPPED_TARGET = {"model": {"default": None, "shown": "the shipped one"}}
"""Of a verifier's settings in commands that have a target of their own."""

Seed = Annotated[int, option_of(GenerationOptions, "seed")]
Target = Annotated[str | None, option_of(EdgeSettings, "target_model")]
Pair = Annotated[str | None, option_of(EdgeSettings, "pair")]
Draft = Annotated[str | None, option_of(EdgeSettings, "draft_model")]
Gguf = Annotated[str | None, option_of(ModelOptions, "gguf")]
Exits = Annotated[str | None, option_of(ModelOptions, "exits")]
ExitLayers = Annotated[str | None, option_of(ModelOptions, "exit_layers")]
Quantize = Annotated[str, option_of(ModelOptions, "quantize")]
Deterministic = Annotated[bool, option_of(ModelOptions, "deterministic")]
Compile = Annotated[bool, option_of(ModelOptions, "compile")]
CompileDraft = Annotated[bool, option_of(EdgeSettings, "compile_draft")]
Device = Annotated[str, option_of(ModelOptions, "device")]
Key = Annotated[Path | None, option_of(EdgeSettings, "key")]
Gamma = Annotated[int, option_of(DecodingOptions, "gamma")]
TopK = Annotated[int | None, option_of(GenerationOptions, "top_k")]
TopP = Annotated[float | None, option_of(GenerationOptions, "top_p")]
MinP = Annotated[float | None, option_of(GenerationOptions, "min_p")]
RepetitionPenalty = Annotated[float | None, option_of(GenerationOptions, "repetition_penalty")]
