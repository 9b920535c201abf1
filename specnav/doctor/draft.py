# SPDX-License-Identifier: Apache-2.0
"""`specnav doctor --draft`: how long forward passes of a draft take on this device, measured in two seconds."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich.console import Console

from specdec.models import LoadedModel, load_draft
from specdec.models.threads import set_threads
from specnav.bench.runner.forwards import time_rows_of
from specnav.doctor.gpu.config import GpuDoctorConfig
from specnav.errors import UsageError
from specnav.terminal import plain_table, say

ROWS = (1, 2, 4, 8)
CONTEXT = 128
"""Tokens before the rows: about an instruction and part of an answer."""
SECONDS = 2.0


@dataclass(frozen=True)
class RowsTaken:
    """A forward pass of `rows` rows takes `ms`; `ms_a_row` is the cost per node of a tree level of that width."""

    rows: int
    ms: float
    ms_a_row: float


@dataclass(frozen=True)
class DraftFindings:
    """Results for one draft. context: tokens before the rows. load_s: loading time."""

    model: str
    parameters: int
    context: int
    load_s: float
    forwards: tuple[RowsTaken, ...]


def run_draft_doctor(given: Mapping[str, Any]) -> int:
    """Load a draft, measure and show it; returns 0. given: for GpuDoctorConfig. Raises UsageError and ModelError."""
    config = GpuDoctorConfig(**{"rows": ROWS, "seconds": SECONDS, **given})
    began = time.perf_counter()
    model = load_draft(config.draft, config.device)
    load_s = time.perf_counter() - began
    set_threads(0, model)
    found = measure(model, config.draft, load_s, config.rows, config.seconds)
    if config.json:
        print(json.dumps(asdict(found), indent=1))
    else:
        _show(found)
    return 0


def measure(
    model: LoadedModel, name: str, load_s: float, rows: Sequence[int], seconds: float,
    clock: Callable[[], float] | None = None,
) -> DraftFindings:
    """Median times of forward passes. Raises UsageError if the rows exceed the model's context."""  # fmt: skip
    counts = sorted(set(rows))
    if model.context_limit - counts[-1] - 2 < 1:
        raise UsageError(f"{name} has a context of {model.context_limit} tokens: give fewer --rows")
    found = [
        RowsTaken(count, round(ms, 4), round(ms / count, 4))
        for count, ms in time_rows_of(model, counts, CONTEXT, seconds, clock)
    ]
    context = min(CONTEXT, model.context_limit - counts[-1] - 2)
    return DraftFindings(name, model.parameter_count, context, round(load_s, 3), tuple(found))


def _show(found: DraftFindings) -> None:
    console = Console(width=None if sys.stdout.isatty() else 130)
    millions = found.parameters / 1e6
    said = f"{millions:,.1f} M parameters, loaded in {found.load_s:.1f} s, {found.context} tokens of context"
    say(console, f"{found.model}: {said}")
    table = plain_table(("rows", "ms per forward", "ms per row", "rows/s"), set())
    for one in found.forwards:
        table.add_row(
            str(one.rows), f"{one.ms:.2f}", f"{one.ms_a_row:.2f}", f"{1e3 * one.rows / one.ms:,.0f}"
        )
    console.print(table)
    say(console, "a chain needs one pass of 1 row per token, a tree one pass per level with a row per node")
