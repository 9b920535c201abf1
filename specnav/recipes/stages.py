# SPDX-License-Identifier: Apache-2.0
"""Runs the stages of a run one after another, with a progress bar for each; completed stages are skipped."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from specnav.recipes.loop import LoopSettings, TrainingTask, fit, read_checkpoint

SHOWN = ("text", "agrees", "tau", "kind", "colour", "answer")
"""The figures of a task that are shown."""


class Stages:
    """Shows the stages of one run. Use `stages()`."""

    def __init__(self, bars: Progress) -> None:
        self.bars = bars

    def say(self, words: str) -> None:
        """Print a line above the bars."""
        self.bars.console.print(words, markup=False, highlight=False)

    def train(
        self,
        title: str,
        spec: Any,
        settings: LoopSettings,
        workers: int,
        build: Callable[..., TrainingTask],
        told: Callable[[dict[str, float]], None] = lambda said: None,
    ) -> tuple[int, float]:
        """Train `build(spec, device)` to its end; returns (updates, seconds), including earlier runs.

        told: called with the loop's figures.
        """
        spent = (
            float(read_checkpoint(settings.checkpoint)["seconds"]) if settings.checkpoint.exists() else 0.0
        )
        started = time.monotonic() - spent
        limit = settings.minutes * 60
        bar = self.bars.add_task(title, total=limit or settings.steps, said="")

        def show(step: int, steps: int, said: dict[str, float]) -> None:
            figures = "  ".join(f"{name} {said[name]:.2f}" for name in SHOWN if name in said)
            if "tokens_per_s" in said:
                figures += f"  {said['tokens_per_s']:.0f} tokens/s"
            done = max((time.monotonic() - started) if limit else step, step / steps * (limit or steps))
            self.bars.update(bar, completed=int(done), said=f"step {step}  {figures}")
            told(said)

        steps = fit(build, (spec,), settings, workers, show)
        self.bars.update(bar, completed=limit or settings.steps)
        return steps, float(read_checkpoint(settings.checkpoint)["seconds"])

    @contextmanager
    def counted(self, title: str, total: int) -> Iterator[Callable[[int, int], None]]:
        """A bar for anything that reports (done, total)."""
        bar = self.bars.add_task(title, total=total, said="")
        yield lambda done, whole: self.bars.update(bar, completed=done, total=whole)
        self.bars.update(bar, completed=total, total=total)


@contextmanager
def stages(threads: int | None = None) -> Iterator[Stages]:
    """Show the progress of a run during the block.

    threads: of torch in this process; more than the free cores would wait for each other. None: as before.
    """
    from transformers.utils import logging as hf_logging

    hf_logging.disable_progress_bar()  # transformers' own bars would break ours
    columns = (
        TextColumn("{task.description:<34}"),
        BarColumn(24),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[said]}"),
    )
    before = torch.get_num_threads()
    torch.set_num_threads(threads or before)
    try:
        with Progress(*columns) as bars:
            yield Stages(bars)
    finally:
        torch.set_num_threads(before)
