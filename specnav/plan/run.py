# SPDX-License-Identifier: Apache-2.0
"""`specnav plan memory`: memory of a pair on the edge and in the cloud, as a table or JSON."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from rich.console import Console
from rich.table import Table

from specdec.options import ModelOptions
from specdec.settings import REQUIRED, check_settings, same_as, setting
from specnav.errors import UsageError
from specnav.plan.memory import BYTES, ModelMemory, memory_of
from specnav.settings import Printed

GPU_CONTEXT = 500 * 2**20
"""Approximate memory of CUDA and its libraries before a model is loaded."""
PROGRAM = 400 * 2**20
"""Approximate memory of Python, torch and transformers on a CPU."""


@dataclass(frozen=True)
class PlanConfig:
    """Settings of `specnav plan memory`."""

    target: str = setting(REQUIRED, "Folder, hub id, or a published name; only its config is read.")
    draft: str | None = setting(None, "Draft model for the edge, likewise.")
    context: int = setting(4096, "Tokens of a session, prompt and answer.", 1, 10_000_000)
    clients: int = setting(1, "Simultaneous sessions in the cloud.", 1, 100_000)
    dtype: str = setting("bfloat16", "Number type of the models.", choices=tuple(BYTES))
    quantize: str = same_as(ModelOptions, "quantize", help="Quantization of the target's weights.")
    draft_quantize: str = same_as(ModelOptions, "quantize", help="Quantization of the draft's weights.")
    device: str = setting("cuda", "Where the models compute.", choices=("cuda", "cpu"))
    gb: float = setting(
        0.0, "The cloud's memory; exit code 1 if the target does not fit. 0: no check.", 0, 1_000_000, unit="GiB"
    )
    json: bool = same_as(Printed, "json", help="The plan as JSON, in bytes.")

    def __post_init__(self) -> None:
        check_settings(self, UsageError)


@dataclass(frozen=True)
class Side:
    """The needs of one machine. name: "edge" or "cloud"."""

    name: str
    model: ModelMemory
    sessions: int
    context: int
    program: int

    @property
    def parts(self) -> dict[str, int]:
        """Bytes by purpose."""
        return {
            "weights": self.model.weights,
            "head in float32": self.model.head,
            "caches": self.sessions * self.context * self.model.kv_a_token,
            "a forward": self.model.forward,
            "a picture": self.model.picture,
            "program, about": self.program,
        }

    @property
    def total(self) -> int:
        """Sum of all parts, bytes."""
        return sum(self.parts.values())


def run_plan_memory(config: PlanConfig) -> int:
    """Print the plan; returns the exit code: 1 if the target's side does not fit. Raises UsageError, ModelError."""
    program = GPU_CONTEXT if config.device == "cuda" else PROGRAM
    target = memory_of(config.target, config.dtype, config.quantize, config.device)
    sides = [Side("cloud", target, config.clients, config.context, program)]
    if config.draft:
        draft = memory_of(config.draft, config.dtype, config.draft_quantize, config.device)
        sides.append(Side("edge", draft, 1, config.context, program))
    missing = max(0.0, sides[0].total - config.gb * 2**30) if config.gb else 0.0
    if config.json:
        print(json.dumps({side.name: described(side) for side in sides}, indent=1))
    else:
        console = Console()
        console.print(table(sides, config))
        if config.gb:
            console.print(verdict(sides[0], config))
    return int(missing > 0)


def described(side: Side) -> dict[str, object]:
    """A side for JSON, in bytes."""
    model = {name: value for name, value in asdict(side.model).items() if name in ("name", "parameters", "kv_a_token")}
    return {**model, "bytes": side.parts, "total": side.total}


def table(sides: list[Side], config: PlanConfig) -> Table:
    """The plan as a table, in GiB."""
    found = Table(box=None, pad_edge=False, title=f"{config.dtype}, {config.context} tokens a session")
    found.add_column("GiB")
    for side in sides:
        who = f"{side.sessions} sessions" if side.sessions > 1 else "1 session"
        found.add_column(f"{side.name}: {side.model.name}\n{side.model.parameters / 1e9:.2f} B, {who}", justify="right")
    for part in sides[0].parts:
        found.add_row(part, *(f"{side.parts[part] / 2**30:.2f}" for side in sides))
    found.add_row("together", *(f"[bold]{side.total / 2**30:.2f}[/]" for side in sides))
    return found


def verdict(side: Side, config: PlanConfig) -> str:
    """A sentence on whether the target's side fits, and for how many sessions."""
    room = config.gb * 2**30 - (side.total - side.parts["caches"])
    if room < 0:
        return f"{config.gb:g} GiB are too little for the model: quantise it, or use a smaller one"
    if not side.model.kv_a_token:
        return f"{config.clients} sessions: fits into {config.gb:g} GiB; its cache does not grow"
    most = int(room // (config.context * side.model.kv_a_token))
    fits = "fits" if most >= config.clients else "does not fit"
    return f"{config.clients} sessions: {fits} into {config.gb:g} GiB; {most} would fit"
