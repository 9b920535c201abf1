# SPDX-License-Identifier: Apache-2.0
"""`specnav drill`, and pointers to the robot's long tests, which were commands once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import typer

from specnav.cli.from_settings import makes
from specnav.errors import UsageError, needs_ros

MOVED = {
    "soak": "-m soak --minutes 30",
    "monkey": "-m monkey --minutes 60",
    "pipeline": "-m pipeline",
}
"""Commands of the previous release that are tests now, and how to run each."""


def add_drill_commands(app: typer.Typer) -> None:
    """Add the commands of this module to the app."""
    app.command(
        epilog="Examples:  specnav drill   |   specnav drill --faults camera,odometry --runs 20   |   "
        "specnav drill --list   |   specnav drill --cancels 100 --cycles 50"
    )(drill)
    for name, marks in MOVED.items():
        settings = {"ignore_unknown_options": True, "allow_extra_args": True}
        app.command(name, hidden=True, context_settings=settings)(_moved(name, marks))


def _moved(name: str, marks: str) -> Callable[[typer.Context], None]:
    def say_where(context: typer.Context) -> None:
        raise UsageError(f"specnav {name} is a test now; in a clone: python -m pytest tests/system {marks}")

    say_where.__doc__ = f"Moved: python -m pytest tests/system {marks}."
    return say_where


@makes("config", "specnav.drill.config:DrillConfig")
def drill(
    config: Any,
    list_: Annotated[bool, typer.Option("--list", help="List the faults and exit.")] = False,
) -> None:
    """Inject faults one at a time while the simulated robot moves or decides, and measure how soon it stops."""
    with needs_ros("a drill"):
        import specnav.supervise.robot_stack  # noqa: F401
    if list_:
        from rich.console import Console

        from specnav.drill.catalogue import all_drills
        from specnav.drill.view import list_table

        Console().print(list_table(all_drills()))
        return
    from specnav.drill.run import run_drill

    raise typer.Exit(run_drill(config))
