"""`specnav drill`, `specnav soak` and `specnav monkey`: known faults, slow growth, and random faults."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from specnav.cli.options import Seed
from specnav.errors import UsageError


def add_drill_commands(app: typer.Typer) -> None:
    """Give the app the commands of this module."""
    app.command(
        epilog="Examples:  specnav drill   |   specnav drill --faults camera,odometry --runs 20   |   "
        "specnav drill --list   |   specnav drill --cancels 100 --cycles 50"
    )(drill)
    app.command(epilog="Example:  specnav soak --minutes 30")(soak)
    app.command(
        epilog="Examples:  specnav monkey   |   specnav monkey --minutes 2000   |   "
        "specnav monkey --case runs/monkey-1/case-131.json"
    )(monkey)


def _need_ros() -> None:
    try:
        import rclpy  # noqa: F401
    except ImportError as error:
        raise UsageError(
            "drills need ROS 2 (rclpy): make setup, or source one; specnav doctor says more"
        ) from error


def drill(
    faults: Annotated[
        str | None,
        typer.Option(help="Comma-separated names, or their beginnings (default: all; see --list)."),
    ] = None,
    runs: Annotated[int, typer.Option(min=1, max=1000, help="How many times to strike each fault.")] = 1,
    seed: Seed = 0,
    out: Annotated[
        Path | None, typer.Option(help="Folder of the report (default: runs/drill-<time>).")
    ] = None,
    cancels: Annotated[
        int, typer.Option(min=0, help="Leak check: cancel this many instructions and watch memory.")
    ] = 0,
    cycles: Annotated[
        int, typer.Option(min=0, help="Leak check: deactivate and activate vlm_nav_node this many times.")
    ] = 0,
    list_: Annotated[bool, typer.Option("--list", help="List the faults and exit.")] = False,
) -> None:
    """Break things one at a time while the simulated robot moves or thinks; measure how soon it stands."""
    _need_ros()
    if list_:
        from rich.console import Console

        from trials.drill.catalogue import all_drills
        from trials.drill.view import list_table

        Console().print(list_table(all_drills()))
        return
    from trials.drill.config import DrillConfig
    from trials.drill.run import run_drill

    names = tuple(name.strip() for name in (faults or "").split(",") if name.strip())
    raise typer.Exit(run_drill(DrillConfig(names, runs, seed, out, cancels, cycles)))


def soak(
    minutes: Annotated[float, typer.Option(min=0.2, max=1440, help="How long to run.")] = 30.0,
    seed: Seed = 0,
    out: Annotated[
        Path | None, typer.Option(help="Folder of the report (default: runs/soak-<time>).")
    ] = None,
) -> None:
    """Run the simulated robot for a long time; watch memory, descriptors, threads and decision times for growth."""
    _need_ros()
    from trials.drill.config import SoakConfig
    from trials.drill.run import run_soak

    raise typer.Exit(run_soak(SoakConfig(minutes, seed, out)))


def monkey(
    minutes: Annotated[int, typer.Option(min=1, max=1_000_000, help="Simulated minutes in all.")] = 60,
    seed: Seed = 0,
    workers: Annotated[int, typer.Option(min=0, max=256, help="Processes (0: one per core).")] = 0,
    case: Annotated[
        Path | None, typer.Option(metavar="FILE.json", help="Run one saved case instead.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder of the results (default: runs/monkey-<time>).")
    ] = None,
) -> None:
    """Run the robot's navigator and gate in simulated time among random faults and orders, and check invariants.

    The base, its sensors and the model are simulated. A run that breaks an invariant is made as short as possible and
    saved.
    """
    from trials.monkey.run import MonkeyConfig, run_case, run_monkey

    if case is not None:
        raise typer.Exit(run_case(case))
    raise typer.Exit(run_monkey(MonkeyConfig(minutes, seed, workers, out)))
