# SPDX-License-Identifier: Apache-2.0
"""`specnav drill`: the whole run, from starting the processes to the report.

Whatever happens (a process dies, Ctrl-C), measurements stay on disk, the report is written and no process is left.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from specnav.drill.config import SPEEDS, DrillConfig
from specnav.drill.definitions import Drill
from specnav.drill.journal import DrillJournal
from specnav.drill.view import DrillView
from specnav.errors import HarnessError
from specnav.results.errors import one_line
from specnav.run_folder import new_run_folder
from specnav.settings import shown_settings

if TYPE_CHECKING:
    from specnav.supervise.robot_stack import Stack


def run_drill(config: DrillConfig) -> int:
    """Run the drills; returns 0, 1 if a fault was not handled, 130 after Ctrl-C. Raises UsageError."""
    from specnav.drill.catalogue import choose

    view = DrillView()
    checks = bool(config.cancels or config.cycles)
    # If only leak checks are requested, inject no faults.
    drills = choose(config.faults) if config.faults or not checks else []
    folder = new_run_folder(config.out, "drill")
    settings = shown_settings(config, leave_out=("out", "faults"), paths=())
    journal = DrillJournal(folder, {**settings, "faults": ", ".join(config.faults) or "all", **SPEEDS})

    # Imported here: rclpy must see the environment that the graph prepares.
    from specnav.supervise.robot_stack import Stack

    logs = folder / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    try:
        view.say("starting the verifier, the simulator and the robot's nodes")
        with Stack(logs, motion=SPEEDS) as stack:
            stack.seed = 1000 * (config.seed + 1)
            stack.start_what_is_down()
            _carry_out(config, drills, stack, journal, view)
    except KeyboardInterrupt:
        journal.interrupted = True
    except HarnessError as error:
        journal.error = one_line(error)
    report = journal.report()
    results = journal.results()
    view.finished(results, report)
    if journal.error:
        print(f"specnav: error: {journal.error}", file=sys.stderr)
    if journal.interrupted:
        return 130
    return 0 if results.passed and not journal.error else 1


def _carry_out(
    config: DrillConfig, drills: Sequence[Drill], stack: Stack, journal: DrillJournal, view: DrillView
) -> None:
    from specnav.drill.injector import FaultInjector
    from specnav.drill.leaks import check_cancels, check_cycles

    injector = FaultInjector(stack)
    with view.drilling(len(drills) * config.runs) as advance:
        # Repeat in rounds, so that quiet minutes of the machine favour no fault.
        for number in range(config.runs):
            for drill in drills:
                run = injector.run(drill, number)
                journal.add(drill, injector.bound_s(drill.bound), run)
                advance(run)
    for check, turns in ((check_cancels, config.cancels), (check_cycles, config.cycles)):
        if turns:
            view.say(f"{turns} turns of {check.__name__.removeprefix('check_')}")
            journal.leaks.append(check(stack, turns))
            journal.save()
