"""`specnav calibrate`: the command that measures a robot's base."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from harness.errors import UsageError


def add_robot_commands(app: typer.Typer) -> None:
    """Give the app the commands of this module."""
    app.command(
        epilog="Examples:  specnav calibrate   |   specnav calibrate --cmd-vel /cmd_vel --odom /odom --room 1.5   |   "
        "specnav calibrate --backend go2_sport --odom /utlidar/robot_odom   |   "
        "specnav calibrate --yes --repetitions 2 --out robot1.yaml --namespace robot1"
    )(calibrate)


def calibrate(
    out: Annotated[
        Path, typer.Option(metavar="FILE.yaml", help="The file to write, for motion_node's --params-file.")
    ] = Path("calibration.yaml"),
    cmd_vel: Annotated[
        str, typer.Option(metavar="TOPIC", help="Where the base takes velocities.")
    ] = "cmd_vel",
    odom: Annotated[str, typer.Option(metavar="TOPIC", help="Odometry of the base.")] = "odom",
    namespace: Annotated[str, typer.Option(metavar="NS", help="Of topics that do not begin with /.")] = "",
    backend: Annotated[
        str, typer.Option(help="twist (any driver), or go2_sport (Unitree's sport API, without one).")
    ] = "twist",
    stamped: Annotated[bool, typer.Option("--stamped", help="Send TwistStamped instead of Twist.")] = False,
    stop_style: Annotated[str, typer.Option(help="How stops are said: epsilon, zero or brake.")] = "epsilon",
    max_linear: Annotated[
        float, typer.Option(min=0.05, max=1.0, help="Fastest forward speed to try, m/s.")
    ] = 0.3,
    max_angular: Annotated[
        float, typer.Option(min=0.1, max=1.5, help="Fastest yaw rate to try, rad/s.")
    ] = 0.6,
    room: Annotated[
        float,
        typer.Option(
            min=0.3, max=10.0, help="Metres straight ahead of the robot that are free and may be used."
        ),
    ] = 1.0,
    repetitions: Annotated[int, typer.Option(min=1, max=10, help="Of every step.")] = 3,
    params_file: Annotated[
        Path | None,
        typer.Option(
            help="motion_node's parameter file: what the new values have to go with (default: its defaults)."
        ),
    ] = None,
    yes: Annotated[
        bool, typer.Option("--yes", help="Go without asking before each step (simulators, CI).")
    ] = False,
) -> None:
    """Measure how the base responds, by small supervised turns and steps, and write motion_node's parameters for it.

    The robot turns on the spot and walks to and fro within --room, never backwards; each step is said beforehand and
    waits for Enter. Ctrl-C, `stop`, `e_stop`, odometry that cannot be relied on, and anybody else's velocities stop it
    at once, and no file is written.
    """
    from specnav.calibrate.config import BACKENDS, STYLES, CalibrateConfig

    for name, value, allowed in (("--backend", backend, BACKENDS), ("--stop-style", stop_style, STYLES)):
        if value not in allowed:
            raise UsageError(f"{name} {value!r} is unknown; choose {', '.join(allowed)}")
    from specnav.calibrate.run import run_calibrate

    config = CalibrateConfig(
        out=out,
        cmd_vel=cmd_vel,
        odom=odom,
        namespace=namespace,
        backend=backend,
        stamped=stamped,
        stop_style=stop_style,
        max_linear=max_linear,
        max_angular=max_angular,
        room_m=room,
        repetitions=repetitions,
        params_file=params_file,
        yes=yes,
    )
    raise typer.Exit(run_calibrate(config))
