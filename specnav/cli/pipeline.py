"""`specnav pipeline`: how long the robot stands between its motions."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer

from specnav.cli.options import Seed
from specnav.errors import UsageError

MOST_RTT_MS = 10_000


def add_pipeline_command(app: typer.Typer) -> None:
    """Give the app the command of this module."""
    app.command(
        epilog="Examples:  specnav pipeline   |   specnav pipeline --rtts 0,80 --verify-ms 30 --decisions 40"
    )(pipeline)


def _rtts(text: str) -> tuple[float, ...]:
    try:
        values = tuple(float(part) for part in text.split(","))
    except ValueError:
        raise UsageError(f"--rtts is {text!r}; give numbers like 0,40,120 (ms)") from None
    if not all(0 <= value <= MOST_RTT_MS for value in values):
        raise UsageError(f"--rtts is {text!r}; each is from 0 to {MOST_RTT_MS} ms")
    return values


def pipeline(
    rtts: Annotated[str, typer.Option(metavar="MS,MS…", help="Emulated round trips.")] = "0,40,120",
    verify_ms: Annotated[
        float, typer.Option(min=0, max=60_000, help="Minimum time of a target forward, ms (0: off).")
    ] = 0.0,
    decisions: Annotated[int, typer.Option(min=2, max=1000, help="Decisions for each figure.")] = 20,
    method: Annotated[str, typer.Option(help="How answers are decoded.")] = "fsd",
    seed: Seed = 0,
    out: Annotated[
        Path | None, typer.Option(help="Folder of the results (default: runs/pipeline-<time>).")
    ] = None,
) -> None:
    """Measure camera to motion and standing time, with and without early action and prefetch (real processes)."""
    from specnav.run_folder import new_run_folder
    from trials.pipeline.pipeline import PipelineConfig
    from trials.pipeline.view import show_pipeline

    config = PipelineConfig(_rtts(rtts), verify_ms, method, decisions, seed)
    show_pipeline(config, new_run_folder(out, "pipeline", datetime.now()))
