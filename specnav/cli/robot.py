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
        Path, typer.Option(metavar="FILE.yaml", help="File to write, for motion_node's --params-file.")
    ] = Path("calibration.yaml"),
    cmd_vel: Annotated[
        str, typer.Option(metavar="TOPIC", help="Topic on which the base takes velocities.")
    ] = "cmd_vel",
    odom: Annotated[str, typer.Option(metavar="TOPIC", help="Odometry of the base.")] = "odom",
    namespace: Annotated[
        str, typer.Option(metavar="NS", help="Namespace of topics that do not begin with /.")
    ] = "",
    backend: Annotated[
        str, typer.Option(help="twist (any driver), or go2_sport (Unitree's sport API, without one).")
    ] = "twist",
    stamped: Annotated[bool, typer.Option("--stamped", help="Send TwistStamped instead of Twist.")] = False,
    stop_style: Annotated[str, typer.Option(help="How to send a stop: epsilon, zero or brake.")] = "epsilon",
    max_linear: Annotated[
        float, typer.Option(min=0.05, max=1.0, help="Fastest forward speed to try, m/s.")
    ] = 0.3,
    max_angular: Annotated[
        float, typer.Option(min=0.1, max=1.5, help="Fastest yaw rate to try, rad/s.")
    ] = 0.6,
    room: Annotated[
        float,
        typer.Option(min=0.3, max=10.0, help="Free space straight ahead of the robot that it may use, m."),
    ] = 1.0,
    repetitions: Annotated[int, typer.Option(min=1, max=10, help="Repetitions of every step.")] = 3,
    params_file: Annotated[
        Path | None,
        typer.Option(
            help="motion_node's parameter file, which the new values must fit (default: its defaults)."
        ),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask before each step (simulators, CI).")] = False,
) -> None:
    """Measure how the base responds, by small supervised turns and steps, and write motion_node's parameters for it.

    The robot turns on the spot and walks to and fro within --room, never backwards. Each step is announced and waits
    for Enter. Ctrl-C, `stop`, `e_stop`, unreliable odometry or velocities from another node stop it at once; then no
    file is written.
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
