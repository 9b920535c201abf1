"""`specnav doctor`: what this machine can run, and what a live ROS graph is like."""

from __future__ import annotations

from typing import Annotated

import typer

from harness.errors import UsageError


def add_doctor_command(app: typer.Typer) -> None:
    """Give the app the command of this module."""
    app.command(
        epilog="Examples:  specnav doctor   |   specnav doctor --robot   |   "
        "specnav doctor --robot --namespace robot1 --image /front/compressed --seconds 10   |   "
        "specnav doctor --robot --verifier tcp://192.168.1.10:5555 --json"
    )(doctor)


def doctor(
    robot: Annotated[
        bool, typer.Option("--robot", help="Look at the live ROS graph instead of this machine.")
    ] = False,
    namespace: Annotated[str, typer.Option(metavar="NS", help="With --robot: namespace of our nodes.")] = "",
    image: Annotated[
        str,
        typer.Option(
            metavar="TOPIC", help="With --robot: the camera (default: what vlm_nav_node subscribes to)."
        ),
    ] = "",
    odom: Annotated[
        str,
        typer.Option(
            metavar="TOPIC", help="With --robot: odometry (default: what motion_node subscribes to)."
        ),
    ] = "",
    cmd_vel: Annotated[
        str,
        typer.Option(
            metavar="TOPIC", help="With --robot: velocities (default: where motion_node publishes)."
        ),
    ] = "",
    verifier: Annotated[
        str, typer.Option(metavar="ADDRESS", help="With --robot: tcp://HOST:PORT (default: vlm_nav_node's).")
    ] = "",
    key: Annotated[
        str,
        typer.Option(metavar="FILE", help="With --robot: key for the verifier (default: vlm_nav_node's)."),
    ] = "",
    seconds: Annotated[
        float, typer.Option(min=1.0, max=600.0, help="With --robot: how long to measure rates, s.")
    ] = 4.0,
    as_json: Annotated[bool, typer.Option("--json", help="Machine-readable output.")] = False,
) -> None:
    """Check what this machine can run, or with --robot what keeps a live robot from moving, and what to do about it.

    With --robot it prints one line per check: ok, warn or FAIL, and the remedy; the exit code is 0 if none is FAIL.
    It only listens, reads parameters and greets the verifier: nothing it does can move a robot.
    """
    if robot:
        from specnav.doctor.robot.config import RobotDoctorConfig
        from specnav.doctor.robot.run import run_robot_doctor

        config = RobotDoctorConfig(namespace, image, odom, cmd_vel, verifier, key, seconds, as_json)
        raise typer.Exit(run_robot_doctor(config))
    if namespace or image or odom or cmd_vel or verifier or key:
        raise UsageError("--namespace, --image, --odom, --cmd-vel, --verifier and --key are for --robot")
    from specnav.doctor.machine import run_doctor

    raise typer.Exit(run_doctor(as_json))
