"""What a live robot is asked: `specnav calibrate` measures its base, `specnav mission` has it do several things."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from specnav.errors import UsageError

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
    seed: Annotated[int, typer.Option(min=0, max=2**31 - 1, help="With --demo: the room.")] = 0,
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
