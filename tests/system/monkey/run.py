"""Many runs side by side, what they broke, and the shortest cases of it on disk."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import msgspec
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from specnav.errors import UsageError
from specnav.run_folder import new_run_folder
from specnav.signals import ends_on_signals
from specnav.terminal import say
from tests.system.monkey.robot import MonkeyRobot
from tests.system.monkey.scenario import Scenario, draw, from_json, to_json
from tests.system.monkey.shrink import broken_by, kind_of, shrunk

SECONDS = 60.0
MOST_SHRUNK = 10  # cases: each takes up to a minute


@dataclass(frozen=True)
class MonkeyConfig:
    """minutes: simulated, over all runs of a minute each; the first has the seed, each other the next."""

    minutes: int = 60
    seed: int = 0
    workers: int = 0  # 0: one a core
    out: Path | None = None


class RunRecord(msgspec.Struct, frozen=True):
    """One run: its seed, simulated seconds, metres really driven, how its instructions ended, what it broke."""

    seed: int
    simulated_s: float
    driven_m: float
    outcomes: dict[str, int]
    violation: str


class MonkeyResults(msgspec.Struct, frozen=True):
    """All runs together; `broken`: kinds of violations and the seeds that break them."""

    simulated_minutes: float
    runs: int
    driven_m: float
    outcomes: dict[str, int]
    broken: dict[str, list[int]]
    interrupted: bool


def run_seed(seed: int) -> RunRecord:
    """Draw a scenario and run it."""
    scenario = draw(seed, SECONDS)
    try:
        robot = MonkeyRobot(scenario)
        watch = robot.run()
    except Exception as error:  # whatever the code under test raises is what is looked for
        return RunRecord(seed, 0.0, 0.0, {}, f"0 s: raised {type(error).__name__}: {error}")
    violation = watch.violations[0] if watch.violations else ""
    return RunRecord(seed, robot.now, watch.driven_m, dict(Counter(watch.outcomes)), violation)


def run_monkey(config: MonkeyConfig, console: Console | None = None) -> int:
    """Run until this many simulated minutes have passed; returns 0, 1 when something broke, 130 after Ctrl-C."""
    folder = new_run_folder(config.out, "monkey")
    console = console or Console(stderr=True)
    records: list[RunRecord] = []
    interrupted = False
    try:
        with ends_on_signals(), _progress(console) as bar:
            task = bar.add_task("simulated minutes", total=config.minutes)
            for record in _records(config):
                records.append(record)
                bar.update(task, completed=sum(r.simulated_s for r in records) / 60)
                if record.violation:
                    say(bar.console, f"seed {record.seed}: {record.violation}")
    except KeyboardInterrupt:
        interrupted = True
    results = _summed(records, interrupted)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "monkey.json").write_bytes(msgspec.json.format(msgspec.json.encode(results), indent=1))
    Console().print(_table(results))
    if not interrupted:
        _keep_cases(results, folder, console)
    say(console, f"results: {folder / 'monkey.json'}")
    return 130 if interrupted else int(bool(results.broken))


def run_case(path: Path) -> int:
    """Run one kept case; returns 0 when it breaks nothing, else 1. Raises UsageError for a file that is none."""
    scenario = read_case(path)
    violation = broken_by(scenario)
    print(violation or f"{path}: nothing broken in {scenario.seconds:g} simulated seconds")
    return int(bool(violation))


def read_case(path: Path) -> Scenario:
    """A scenario from its file. Raises UsageError."""
    try:
        return from_json(path.read_bytes())
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from error
    except (msgspec.DecodeError, ValueError) as error:
        raise UsageError(f"{path} is not a case of the monkey: {error}") from error


def _records(config: MonkeyConfig) -> Iterator[RunRecord]:
    """Runs in the order of their seeds, until their simulated time is enough."""
    workers = config.workers or os.cpu_count() or 1
    if workers == 1:
        yield from _until(map(run_seed, count(config.seed)), config.minutes * 60.0)
        return
    # Ctrl-C is for the parent alone.
    quiet = (signal.SIGINT, signal.SIG_IGN)
    with multiprocessing.get_context("spawn").Pool(workers, signal.signal, quiet) as pool:
        # The pool takes everything that it is offered, at once.
        seeds = range(config.seed, config.seed + 4 * config.minutes + 16)
        yield from _until(pool.imap(run_seed, seeds), config.minutes * 60.0)


def _until(runs: Iterator[RunRecord], wanted_s: float) -> Iterator[RunRecord]:
    done_s = 0.0
    for record in runs:
        done_s += record.simulated_s or SECONDS  # one that raises takes a run's place
        yield record
        if done_s >= wanted_s:
            return


def _progress(console: Console) -> Progress:
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed:.0f} of {task.total}"),
    )
    return Progress(*columns, TimeRemainingColumn(), console=console, transient=True)


def _summed(records: list[RunRecord], interrupted: bool) -> MonkeyResults:
    outcomes: Counter[str] = Counter()
    broken: dict[str, list[int]] = {}
    for record in records:
        outcomes.update(record.outcomes)
        if record.violation:
            broken.setdefault(kind_of(record.violation), []).append(record.seed)
    return MonkeyResults(
        simulated_minutes=sum(r.simulated_s for r in records) / 60,
        runs=len(records),
        driven_m=sum(r.driven_m for r in records),
        outcomes=dict(outcomes.most_common()),
        broken=broken,
        interrupted=interrupted,
    )


def _table(results: MonkeyResults) -> Table:
    table = Table(
        title=f"{results.simulated_minutes:.0f} simulated minutes, {results.runs} runs, {results.driven_m:.0f} m driven"
    )
    table.add_column("what")
    table.add_column("how often", justify="right")
    for code, number in results.outcomes.items():
        table.add_row("done" if code == "NONE" else code, str(number))
    for kind, seeds in results.broken.items():
        table.add_row(f"[red]broken:[/] {kind}", str(len(seeds)))
    if not results.broken:
        table.add_row("invariants broken", "0")
    return table


def _keep_cases(results: MonkeyResults, folder: Path, console: Console) -> None:
    """Write the shortest case of each kind that was broken."""
    for kind, seeds in list(results.broken.items())[:MOST_SHRUNK]:
        say(console, f"making a short case of seed {seeds[0]}")
        path = folder / f"case-{seeds[0]}.json"
        path.write_bytes(to_json(shrunk(draw(seeds[0], SECONDS))))
        say(console, f"{kind}: python -m pytest tests/system -m monkey --case {path}")
