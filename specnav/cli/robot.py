# SPDX-License-Identifier: Apache-2.0
"""What a live robot is asked: `specnav calibrate` measures its base, `specnav mission` has it do several things."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from specnav.cli.from_settings import takes

mission_app = typer.Typer(no_args_is_help=True, help="Missions: several instructions one after the other.")
Given = Annotated[
    str,
    typer.Argument(
        metavar="FILE|SENTENCE", help="A mission's YAML file, or a sentence with several things to do."
    ),
]
Namespace = Annotated[str, typer.Option(metavar="NS", help="Namespace of the robot.")]


def add_robot_commands(app: typer.Typer) -> None:
    """Give the app the commands of this module."""
    app.add_typer(mission_app, name="mission")
    app.command(
        epilog="Examples:  specnav calibrate   |   specnav calibrate --cmd-vel /cmd_vel --odom /odom --room 1.5   |   "
        "specnav calibrate --backend go2_sport --odom /utlidar/robot_odom   |   "
        "specnav calibrate --yes --repetitions 2 --out robot1.yaml --namespace robot1"
    )(calibrate)


@takes("given", "specnav.calibrate.config:CalibrateConfig")
def calibrate(given: dict[str, Any]) -> None:
    """Measure how the base responds, by small supervised turns and steps, and write motion_node's parameters for it.

    The robot turns on the spot and walks to and fro within --room, never backwards. Each step is announced and waits
    for Enter. Ctrl-C, `stop`, `e_stop`, unreliable odometry or velocities from another node stop it at once; then no
    file is written.
    """
    from specnav.calibrate.config import CalibrateConfig

    config = CalibrateConfig(**given)
    from specnav.calibrate.run import run_calibrate

    raise typer.Exit(run_calibrate(config))


@mission_app.command(
    epilog="Examples:  specnav mission check round.yaml   |   "
    'specnav mission check "go to the red table, then the blue box"'
)
def check(
    mission: Given, json: Annotated[bool, typer.Option("--json", help="Print the steps as JSON.")] = False
) -> None:
    """Show a mission's steps, or every line that is wrong in it and what is allowed; nothing moves."""
    from specnav.mission.run import check_mission

    raise typer.Exit(check_mission(mission, json))


@mission_app.command(
    epilog="Examples:  specnav mission run round.yaml   |   specnav mission run round.yaml --demo --seed 3   |   "
    'specnav mission run "find the red table, then the green ball" --namespace one --out results.json'
)
def run(
    mission: Given,
    demo: Annotated[
        bool,
        typer.Option("--demo", help="In the simulator, all processes on this machine (no robot needed)."),
    ] = False,
    seed: Annotated[int, typer.Option(min=0, max=2**31 - 1, help="With --demo: seed of the simulated room.")] = 0,
    namespace: Namespace = "",
    out: Annotated[
        Path | None,
        typer.Option(
            help="JSON file of the results; with --demo: the run's folder (default: runs/mission-<time>)."
        ),
    ] = None,
) -> None:
    """Carry out a mission on the live robot, or in the simulator; Ctrl-C cancels it, and the robot stands."""
    from specnav.mission.run import run_in_demo, run_live

    raise typer.Exit(run_in_demo(mission, seed, out) if demo else run_live(mission, namespace, out))


@mission_app.command(
    epilog="Examples:  specnav mission order pause   |   specnav mission order resume   |   "
    "specnav mission order move --step 4 --place 2   |   "
    'specnav mission order append --steps "go to the door"'
)
def order(
    what: Annotated[str, typer.Argument(help="pause, resume, skip, cancel, move, append or show.")],
    namespace: Namespace = "",
    step: Annotated[int, typer.Option(min=0, help="With move: the step's number.")] = 0,
    place: Annotated[int, typer.Option(min=0, help="With move: where in the list, from 1.")] = 0,
    steps: Annotated[str, typer.Option(metavar="FILE|SENTENCE", help="With append: what is added.")] = "",
) -> None:
    """Pause, resume, skip, cancel, reorder or extend the mission that the robot is carrying out, or show it."""
    from specnav.mission.run import order as give

    raise typer.Exit(give(what, namespace, step, place, steps))
