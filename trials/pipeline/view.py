"""Runs the pipeline study with a progress bar; leaves results.json, also of what there is after Ctrl-C."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console
from rich.table import Table

from specnav.results.demo import SCHEMA
from specnav.results.files import write_json
from specnav.terminal import progress_bar
from trials.pipeline.pipeline import WAYS, Cell, PipelineConfig, PipelineResults, run_pipeline

COLUMNS = ("way", "RTT ms", "camera to motion p50", "p95", "standing p50", "p95", "n", "dropped")


def show_pipeline(config: PipelineConfig, run: Path) -> None:
    """Measure, show, save."""
    console = Console()
    cells: list[Cell] = []
    try:
        with progress_bar(console) as progress:
            task = progress.add_task("starting", total=len(config.rtts) * len(WAYS) * config.decisions)

            def on_progress(what: str, done: int) -> None:
                progress.update(task, description=what, completed=len(cells) * config.decisions + done)

            for cell in run_pipeline(config, run, on_progress):
                cells.append(cell)
                write_json(run / "results.json", PipelineResults(schema=SCHEMA, config=config, cells=cells))
    finally:
        if cells:
            console.print(table(config, cells))
            console.print(f"[dim]{run}/results.json[/]")


def table(config: PipelineConfig, cells: list[Cell]) -> Table:
    """The cells as a table."""
    paced = f", target paced to {config.verify_ms:g} ms a forward" if config.verify_ms else ""
    made = Table(*COLUMNS, title=f"milliseconds, {config.method}, emulated link{paced}", title_justify="left")
    for cell in cells:
        made.add_row(*cell.line())
    return made
