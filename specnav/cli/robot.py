# SPDX-License-Identifier: Apache-2.0
"""Commands for a live robot: `specnav calibrate` measures its base, `specnav mission` carries out missions."""

from __future__ import annotations

from typing import Any

import typer

from specnav.cli.from_settings import makes

mission_app = typer.Typer(no_args_is_help=True, help="Missions: several instructions in sequence.")


def add_robot_commands(app: typer.Typer) -> None:
    """Add the commands of this module to the app."""
    app.add_typer(mission_app, name="mission")
    app.command(
        epilog="Examples:  specnav calibrate   |   specnav calibrate --cmd-vel /cmd_vel --odom /odom --room 1.5   |   "
        "specnav calibrate --backend go2_sport --odom /utlidar/robot_odom   |   "
        "specnav calibrate --yes --repetitions 2 --out robot1.yaml --namespace robot1"
    )(calibrate)


@makes("config", "specnav.calibrate.config:CalibrateConfig")
def calibrate(config: Any) -> None:
    """Measure how the base responds, by small supervised motions, and write motion_node's parameters for it.

    The robot turns on the spot and moves to and fro within --room, never backwards. Each step is announced and waits
    for Enter. Ctrl-C, `stop`, `e_stop`, unreliable odometry or velocities from another node stop it at once, and no
    file is written.
    """
    from specnav.calibrate.run import run_calibrate

    raise typer.Exit(run_calibrate(config))


@mission_app.command(
    epilog="Examples:  specnav mission check round.yaml   |   "
    'specnav mission check "go to the red table, then the blue box"'
)
@makes("config", "specnav.mission.run:CheckConfig")
def check(config: Any) -> None:
    """Show a mission's steps, or every invalid line and what is allowed; nothing moves."""
    from specnav.mission.run import check_mission

    raise typer.Exit(check_mission(config))


@mission_app.command(
    epilog="Examples:  specnav mission run round.yaml   |   specnav mission run round.yaml --demo --seed 3   |   "
    'specnav mission run "find the red table, then the green ball" --namespace one --out results.json'
)
@makes("config", "specnav.mission.run:MissionConfig")
def run(config: Any) -> None:
    """Carry out a mission on the live robot or in the simulator; Ctrl-C cancels it and stops the robot."""
    from specnav.mission.run import run_in_demo, run_live

    raise typer.Exit(run_in_demo(config) if config.demo else run_live(config))


@mission_app.command(
    epilog="Examples:  specnav mission order pause   |   specnav mission order resume   |   "
    "specnav mission order move --step 4 --place 2   |   "
    'specnav mission order append --steps "go to the door"'
)
@makes("config", "specnav.mission.run:OrderConfig")
def order(config: Any) -> None:
    """Pause, resume, skip, cancel, reorder or extend the robot's current mission, or show it."""
    from specnav.mission.run import give_order

    raise typer.Exit(give_order(config))
