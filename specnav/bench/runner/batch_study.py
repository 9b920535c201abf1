# SPDX-License-Identifier: Apache-2.0
"""`specnav bench study batch`: the cost of a shared forward on this machine, and how a long prompt delays others."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import psutil
import torch
from rich.console import Console

from cloud_verifier.engine.policy import Policy
from specdec.models import LoadedModel, load_model
from specdec.models.threads import set_threads
from specnav.bench.records.batch import BATCH_FILE, BatchCurve, CurvePoint, PromptDelay
from specnav.bench.records.study import StudyResults
from specnav.bench.runner.clients import numbers_of
from specnav.bench.runner.ending import noting_the_end
from specnav.bench.runner.forwards import CONTEXT, clock_of, measure_curve
from specnav.bench.runner.prompts import measure_prompt
from specnav.bench.runner.run import series_folder
from specnav.bench.runner.study import keep_study, show
from specnav.bench.settings import BenchConfig, make_config
from specnav.bench.studies.batch import ROWS, SESSIONS
from specnav.errors import UsageError
from specnav.paths import DEFAULT_TARGET
from specnav.results.demo import SCHEMA, describe_machine
from specnav.run_folder import started_at
from specnav.terminal import say

NAME = "batch"
SECONDS = 30.0
WHOLE = 4096
"""A chunk size, in rows, that prefills a whole prompt in one forward."""
_TAKEN = frozenset({"target_model", "device", "quantize", "out", "resume"})


def run_batch_study(
    flags: Mapping[str, Any], clients: str | None, seconds: float | None,
    load: Callable[[BenchConfig, str], LoadedModel] | None = None,
) -> int:
    """Measure, draw and report. Returns the exit code: 130 if interrupted, in which case nothing is written.

    Args:
        flags: of `specnav bench`, None where not given.
        clients: numbers of sessions, separated by commas.
        seconds: time for measuring forwards.
        load: loads the model; for tests.

    Raises:
        UsageError: for wrong flags; the errors of the rooms used pass through.
    """  # fmt: skip
    _check(flags)
    counts = tuple(sorted(set(numbers_of(clients)))) if clients is not None else SESSIONS
    config = make_config({name: flags.get(name) for name in _TAKEN - {"out", "resume"}})
    console = Console(stderr=True)
    folder = series_folder(flags, "study") / NAME
    if (folder / BATCH_FILE).is_file():
        say(console, f"study {NAME} is done already: {folder / BATCH_FILE}")
        show(folder.parent, console)
        return 0
    began, when = time.monotonic(), started_at()
    psutil.cpu_percent()
    with noting_the_end() as ending:
        curve = _measure(config, flags, counts, seconds or SECONDS, load or _load, console)
        curve.save(folder)
    if (folder / BATCH_FILE).is_file():
        results = StudyResults(
            schema=SCHEMA,
            name=NAME,
            settings=[],
            machine=describe_machine(),
            started_at=when,
            wall_s=time.monotonic() - began,
        )
        keep_study(folder, results)
        show(folder.parent, console)
        say(console, f"curve: {folder / BATCH_FILE}")
    return ending.exit_code()


def _check(flags: Mapping[str, Any]) -> None:
    if others := [name for name, value in flags.items() if value not in (None, False) and name not in _TAKEN]:
        flag = "--" + others[0].removesuffix("_ms").removesuffix("_mbps").replace("_", "-")
        raise UsageError(f"study {NAME} measures forwards of --target-model alone; leave {flag} out")


def _measure(
    config: BenchConfig, flags: Mapping[str, Any], counts: tuple[int, ...], seconds: float,
    load: Callable[[BenchConfig, str], LoadedModel], console: Console,
) -> BatchCurve:  # fmt: skip
    say(console, f"study {NAME}: forwards of up to {max(counts)} sessions, about {seconds:.0f} s; then long prompts")
    target = load(config, config.target_model)
    points = measure_curve(target, counts, ROWS, seconds)
    for one in points:
        say(console, f"  {in_one_line(one)}")
    models = [target]
    if not flags.get("target_model"):  # the text target takes no images, the robot's target does
        models.append(load(config, str(DEFAULT_TARGET)))
    prompts: list[PromptDelay] = []
    for model in models:
        for chunk in (Policy.chunk, WHOLE):
            prompts.append(measure_prompt(model, chunk))
            say(console, f"  {prompts[-1].label}, {chunk} rows a forward: {_delay(prompts[-1])}")
    return BatchCurve(
        schema=SCHEMA,
        model=Path(target.path).name,
        device=str(target.device),
        threads=torch.get_num_threads(),
        context=CONTEXT,
        points=points,
        prompts=prompts,
        machine=describe_machine(),
        cores_busy=psutil.cpu_percent() / 100,
        clock="processor" if clock_of(target) is time.thread_time else "wall",
    )


def _load(config: BenchConfig, path: str) -> LoadedModel:
    model = load_model(path, config.device, config.dtype, config.quantize)
    set_threads(0, model)
    return model


def in_one_line(one: CurvePoint) -> str:
    """A point as text for the terminal."""
    words = f"{one.together_ms:.2f} ms together, {one.apart_ms:.2f} ms one after the other"
    return f"{one.sessions} × {one.rows} rows: {words}, {one.apart_ms / one.together_ms:.2f} times"


def _delay(one: PromptDelay) -> str:
    return (
        f"verdicts of {one.sessions} others {one.alone_ms:.1f} → {one.during_ms:.1f} ms "
        f"({one.during_ms / one.alone_ms:.1f} times, the longest {one.worst_ms / one.alone_ms:.1f})"
    )
