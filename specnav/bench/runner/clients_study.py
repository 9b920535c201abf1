# SPDX-License-Identifier: Apache-2.0
"""`specnav bench study clients`: a series of measurements, each saved in its own file, and one page about all.

However the study ends, finished measurements are kept and drawn; `--resume` makes the missing ones.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
from rich.console import Console

from cloud_verifier.engine.policy import Policy
from specnav.bench.data.points import load_point
from specnav.bench.data.questions import Question, load_questions
from specnav.bench.records.capacity import DISTURBED, BatchCurve, ClientsRow, load_curve
from specnav.bench.records.study import (
    CELLS,
    STUDY_FILE,
    CellRecord,
    StudyResults,
    measured_cells,
)
from specnav.bench.runner.clients import (
    ClientQuestions,
    ask_target,
    measure_clients,
    methods_for_clients,
    numbers_of,
    settling_s,
)
from specnav.bench.runner.ending import noting_the_end
from specnav.bench.runner.run import LOGS, differing, new_folder, series_folder, settings_of
from specnav.bench.runner.study import check_flags, in_words, keep_study, scaled, show
from specnav.bench.settings import BenchConfig, make_config
from specnav.bench.studies import study_named
from specnav.bench.studies.clients import COUNTS, METHODS, RTTS, ServingCell, best_gammas, cells, searches
from specnav.errors import UsageError
from specnav.results.demo import SCHEMA, Setting, describe_machine
from specnav.results.files import read_json, write_json
from specnav.run_folder import started_at
from specnav.terminal import say

NAME = "clients"
POINT = "specedge-32b"
TIME_SCALE = 1.0
SECONDS = 12.0
"""Length of a measurement, multiplied by the time scale if that is above 1."""
START_S = 9.0
"""Time to start and stop a verifier and its clients."""
FEW, FEW_LONGER = 2, 2.0
TEXTS = "texts of the questions"
MAY_DIFFER = frozenset({"methods", "limit", "questions", "seconds"})
"""TEXTS may not, whatever the files are called: all measurements ask the same."""

Measure = Callable[[ServingCell, Path], ClientsRow]
"""Makes one measurement, from a cell and a folder for logs."""


@dataclass(frozen=True)
class ServingPlan:
    """The requested study. config: scaled. methods, rtts (unscaled), counts: the values that are varied."""

    config: BenchConfig
    methods: tuple[str, ...]
    rtts: tuple[float, ...]
    counts: tuple[int, ...]
    gamma: int | None
    seconds: float
    time_scale: float
    curve: BatchCurve | None
    results: StudyResults

    def config_for(self, cell: ServingCell) -> BenchConfig:
        """The settings of one measurement."""
        return replace(self.config, gamma=cell.gamma, rtt_ms=cell.rtt_ms * self.time_scale)

    def seconds_of(self, cell: ServingCell) -> float:
        """How long a cell is measured; longer for few clients, which make few rounds but are the basis of planning."""
        return self.seconds * (FEW_LONGER if cell.clients <= FEW else 1)

    def estimate_s(self, cell: ServingCell) -> float:
        """Estimated seconds of a measurement."""
        return START_S + settling_s(self.config_for(cell), cell.clients) + self.seconds_of(cell)

    def searches(self) -> list[ServingCell]:
        """The cells that search for draft lengths; none if a length was given."""
        return [] if self.gamma is not None else searches(self.methods, self.rtts[0])

    def cells(self, measured: Iterable[CellRecord]) -> list[ServingCell]:
        """All other cells, with the best draft lengths that the searches have found so far."""
        gammas = best_gammas(measured) if self.gamma is None else {}
        return cells(self.methods, self.rtts, self.counts, gammas, self.config.gamma)


def run_clients_study(
    flags: Mapping[str, Any], time_scale: float | None, clients: str | None, seconds: float | None,
    curve: Path | None, measure: Measure | None = None,
) -> int:
    """Run the study; returns the exit code (130 when interrupted).

    Args:
        flags: of `specnav bench`, None where not given.
        time_scale: factor on every time of the operating point.
        clients: numbers of clients, separated by commas.
        seconds: length of a measurement.
        curve: result of the study `batch`, used for planning.
        measure: makes one measurement; for tests.

    Raises:
        UsageError: for wrong flags; the errors of other packages pass through.
    """  # fmt: skip
    scale = time_scale or TIME_SCALE
    plan = _plan(flags, scale, clients, seconds or SECONDS * max(1.0, scale), curve)
    folder = series_folder(flags, "study") / NAME
    if (folder / STUDY_FILE).is_file():
        _check_same(plan, StudyResults.load(folder))
    console = Console(stderr=True)
    _announce(console, plan, folder)
    with noting_the_end() as ending:
        _measure_all(plan, folder, measure or _measuring(plan, console), console)
    show(folder.parent, console, lambda: _keep(plan, folder, ending.error))
    return ending.exit_code()


def _plan(
    flags: Mapping[str, Any], time_scale: float, clients: str | None, seconds: float, curve: Path | None
) -> ServingPlan:
    study = study_named(NAME)
    check_flags(flags, [study])
    given = {name: value for name, value in flags.items() if value is not None and name not in ("out", "resume")}
    point = str(given.get("point", POINT))
    config = make_config({"max_new_tokens": study.max_new_tokens, "methods": METHODS, **given, "point": point})
    methods, _ = methods_for_clients(config)
    near = float(given.get("rtt_ms", config.rtt_ms))
    rtts = (near,) if "rtt_ms" in given else (near, *(rtt for rtt in RTTS if rtt != near))
    counts = tuple(sorted(set(numbers_of(clients)))) if clients is not None else COUNTS
    config = scaled(config, time_scale)
    texts = _digest(load_questions(config.questions, config.limit))
    own: dict[str, Setting] = {"seconds": seconds, "forward_rows": Policy.rows, TEXTS: texts}
    results = StudyResults(
        schema=SCHEMA,
        name=NAME,
        settings=[],
        time_scale=time_scale,
        point=load_point(point)[1],
        config={**settings_of(config, methods), **own},
        machine=describe_machine(),
        started_at=started_at(),
    )
    loaded = None if curve is None else load_curve(curve)
    return ServingPlan(config, methods, rtts, counts, given.get("gamma"), seconds, time_scale, loaded, results)


def _digest(questions: Sequence[Question]) -> str:
    return hashlib.sha256("".join(one.digest for one in questions).encode()).hexdigest()[:16]


def _check_same(plan: ServingPlan, before: StudyResults) -> None:
    """Raise UsageError if the study was begun with other settings, for example another time scale."""
    now = plan.results
    if now.time_scale != before.time_scale:
        raise UsageError(f"cannot resume: --time-scale was {before.time_scale:g} and is {now.time_scale:g}")
    if changed := differing(now.config, before.config, MAY_DIFFER):
        raise UsageError(f"cannot resume: {changed}; use the same settings")


def _measure_all(plan: ServingPlan, folder: Path, measure: Measure, console: Console) -> None:
    """Make every measurement that is missing or was disturbed, searches first; save each at once."""
    done = undisturbed(folder)
    for stage in (plan.searches, lambda: plan.cells(measured_cells(folder).values())):
        missing = [cell for cell in stage() if cell.file not in done]
        done |= {cell.file for cell in missing}
        for number, cell in enumerate(missing):
            left = sum(plan.estimate_s(one) for one in missing[number:])
            say(console, f"{cell} ({number + 1} of {len(missing)}, about {in_words(left)} left)")
            began = time.monotonic()
            row = measure(cell, new_folder(folder / LOGS / Path(cell.file).stem))
            record = CellRecord(
                name=cell.name, method=cell.method, gamma=cell.gamma, groups=cell.groups, rtt_ms=cell.rtt_ms, row=row,
                wall_s=time.monotonic() - began,
            )  # fmt: skip
            keep_the_quieter(folder / CELLS / cell.file, record)
            _keep(plan, folder, "")
            say(console, f"  {in_one_line(row, plan.time_scale)}")


def undisturbed(folder: Path) -> set[str]:
    """Files of the measurements that no other program disturbed. Raises EvaluationError."""
    return {file for file, record in measured_cells(folder).items() if record.row.mark != DISTURBED}


def keep_the_quieter(place: Path, record: CellRecord) -> None:
    """Write a measurement, unless an earlier one of the same cell was disturbed less."""
    if not place.is_file() or record.row.cores_others <= read_json(place, CellRecord).row.cores_others:
        write_json(place, record)


def in_one_line(row: ClientsRow, scale: float) -> str:
    """A measurement as text for the terminal, scaled back to the operating point's times."""
    idle = row.server.get("idle_share", 0.0)
    bound = f", {row.mark}" * bool(row.mark)
    return (
        f"{row.rate * scale:.1f} tok/s, each {row.median * scale:.1f}, p95 {row.slow * scale:.1f}; idle {idle:.0%}; "
        f"cores busy {row.cores_busy:.0%} (ours {row.cores_ours:.0%}){bound}"
    )


def _measuring(plan: ServingPlan, console: Console) -> Measure:
    """A function that measures; first the target answers alone, so that every answer can be compared."""
    asked: list[ClientQuestions] = []

    def measure(cell: ServingCell, logs: Path) -> ClientsRow:
        if not asked:
            asked.append(ask_target(plan.config, lambda words: say(console, words)))
            plan.results.notes.extend(one.acceptance.line for one in asked if one.acceptance is not None)
        groups = ("--groups", str(cell.groups))
        config = plan.config_for(cell)
        return measure_clients(config, cell.method, cell.clients, plan.seconds_of(cell), asked[0], logs, groups)

    return measure


def _announce(console: Console, plan: ServingPlan, folder: Path) -> None:
    asked, measured = asked_of(plan, folder), undisturbed(folder)
    missing = [cell for cell in asked if cell.file not in measured]
    done = f", {len(asked) - len(missing)} done already" * (len(missing) < len(asked))
    left = in_words(sum(plan.estimate_s(cell) for cell in missing))
    say(
        console,
        f"study {NAME}: {len(asked)} measurements{done}, about {left}, every time of the operating point times "
        f"{plan.time_scale:g}; --clients, --methods, --rtt and --seconds make it shorter or longer",
    )


def asked_of(plan: ServingPlan, folder: Path) -> list[ServingCell]:
    """All measurements known so far; a cell that is also part of a search counts once."""
    both = (*plan.searches(), *plan.cells(measured_cells(folder).values()))
    return list({cell.file: cell for cell in both}.values())


def _keep(plan: ServingPlan, folder: Path, error: str) -> None:
    """Write `study.json` from the current measurements."""
    asked = asked_of(plan, folder)
    complete = all((folder / CELLS / cell.file).is_file() for cell in asked)
    before = StudyResults.load(folder) if (folder / STUDY_FILE).is_file() else None
    results = msgspec.structs.replace(
        plan.results,
        curve=plan.curve or (before.curve if before else None),
        started_at=before.started_at if before else plan.results.started_at,
        asked=len(asked),
        interrupted=not complete and not error,
        error="" if complete else error,
    )
    keep_study(folder, results)
