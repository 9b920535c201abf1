"""Options that several commands share, declared once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

METRICS = "127.0.0.1:9464"
"""Where commands and documents expect a verifier's --metrics; 9090 is where Prometheus itself listens."""

SHIPPED_TARGET = {"model": {"default": None, "shown": "the shipped one"}}
"""Of a verifier's settings in commands that have a target of their own."""

Seed = Annotated[int, typer.Option(min=0, max=2**63 - 1, help="Seed of everything random.")]
Target = Annotated[
    str | None,
    typer.Option("--target-model", help="Target: a Hugging Face folder or hub id. Default: the shipped one."),
]
Draft = Annotated[
    str | None,
    typer.Option(
        "--draft-model", help="Draft: a Hugging Face folder or hub id, or a GGUF file. Default: the shipped one."
    ),
]
VerdictLogFolder = Annotated[
    str | None,
    typer.Option(
        "--verdict-log", metavar="FOLDER", help="Keep what the target says there, for a draft to learn from (none)."
    ),
]
VerdictLogContents = Annotated[
    str | None,
    typer.Option(help="What the verdict log holds: tokens, prompts (with tokens), or pictures (with both); tokens."),
]
TensorParallel = Annotated[
    int | None,
    typer.Option(min=1, max=64, metavar="K", help="GPUs of one machine that share the target; with --engine vllm (1)."),
]
Gguf = Annotated[
    str | None,
    typer.Option(
        metavar="NAME=VALUE,...",
        help="Of a GGUF draft: threads, gpu_layers (-1: all), context (tokens), kv (f32, f16 or q8_0), mmproj (file).",
    ),
]
Exits = Annotated[
    str | None,
    typer.Option(
        metavar="FOLDER",
        help="Early exits of the target, for hints. Default: NAME-exits beside a target NAME-target; none: no hints.",
    ),
]
ExitLayers = Annotated[
    str | None,
    typer.Option(help="Exits to use: auto (the few that pay off), all, every:K or layers like 1,3,5."),
]
Quantize = Annotated[str, typer.Option(help="none, 8bit or 4bit (bitsandbytes).")]
Deterministic = Annotated[
    bool,
    typer.Option(
        "--deterministic",
        help="Slower: no forward of the target depends on which rows share it, so that answers are those of `ar` "
        "in half precision, too.",
    ),
]
Compile = Annotated[
    bool,
    typer.Option(
        "--compile",
        help="The target's layers are compiled by torch, which takes some seconds and needs a C++ compiler: for GPUs; "
        "on a CPU a small model is slower.",
    ),
]
CompileDraft = Annotated[
    bool, typer.Option("--compile-draft", help="The same for the draft model, where it runs on the edge.")
]
Patience = Annotated[
    float, typer.Option(min=0, max=3600, help="Go on so long after a lost link, or with a busy verifier, s.")
]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:0 …")]
Key = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Key for a verifier with keys (specnav keys export); with --connect."),
]
Rtt = Annotated[
    float, typer.Option("--rtt", min=0, max=60_000, help="Emulated round-trip time of the link, ms.")
]
Jitter = Annotated[float, typer.Option(min=0, max=60_000, help="Emulated jitter, ms.")]
Bandwidth = Annotated[float, typer.Option(min=0, help="Emulated bandwidth each way, Mb/s (0: no limit).")]
Loss = Annotated[float, typer.Option(min=0, max=0.9, help="Emulated share of messages that TCP must resend.")]
Gamma = Annotated[int, typer.Option(min=1, max=32, help="Draft tokens per round.")]
Temperature = Annotated[
    float,
    typer.Option(
        min=0,
        max=10,
        help="0 is greedy; above 0, exact samples of the target's distribution by shared noise.",
    ),
]
TopK = Annotated[int | None, typer.Option(min=0, help="Sample from the K likeliest tokens only (0: off).")]
TopP = Annotated[
    float | None, typer.Option(min=0, max=1, help="Sample from the likeliest tokens that make up P (1: off).")
]
MinP = Annotated[
    float | None,
    typer.Option(min=0, max=1, help="Sample from tokens at least P times as likely as the best (0: off)."),
]
RepetitionPenalty = Annotated[
    float | None,
    typer.Option(min=0.01, max=100, help="Above 1, tokens that occurred before become less likely (1: off)."),
]
