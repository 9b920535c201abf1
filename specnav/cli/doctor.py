# SPDX-License-Identifier: Apache-2.0
"""`specnav doctor`: checks what this machine can run, or the state of a live ROS graph."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from specnav.cli.from_settings import EDGE, takes
from specnav.errors import UsageError

SHARED = ("seconds", "json")
"""Settings that all doctors share."""
WHERE = {
    "contexts": "--gpu",
    "gamma": "--gpu",
    "device": "--gpu and --draft",
    "rows": "--gpu and --draft",
    "seconds": "--gpu, --draft and --robot",
}
"""Which doctors take a setting; the others refuse it."""


def add_doctor_command(app: typer.Typer) -> None:
    """Add the command of this module to the app."""
    app.command(
        epilog="Examples:  specnav doctor   |   specnav doctor --robot   |   "
        "specnav doctor --robot --namespace robot1 --image /front/compressed --seconds 10   |   "
        "specnav doctor --robot --verifier tcp://192.168.1.10:5555 --json   |   "
        "specnav doctor --draft drafts/qwen2-vl-2b-q4_0.gguf   |   "
        "specnav doctor --gpu --model Qwen/Qwen2-VL-7B-Instruct --draft Qwen/Qwen2-VL-2B-Instruct --json > gpu.json"
    )(doctor)


@takes("named", EDGE, only=("pair",), changes={"pair": {"help": "With --gpu: target and draft by one name."}})
@takes("given", "specnav.doctor.gpu.config:GpuDoctorConfig")
@takes("of_robot", "specnav.doctor.robot.config:RobotDoctorConfig", leave_out=SHARED)
def doctor(
    given: dict[str, Any],
    of_robot: dict[str, Any],
    named: dict[str, str],
    robot: Annotated[
        bool, typer.Option("--robot", help="Check the live ROS graph instead of this machine.")
    ] = False,
    gpu: Annotated[bool, typer.Option("--gpu", help="Measure a pair of models on this GPU or CPU.")] = False,
) -> None:
    """Check what this machine can run; with --robot, what keeps a live robot from moving, and how to fix it.

    With --gpu it loads a pair of models in several number types and measures them: memory compared with the plan,
    forward passes by rows and context compared with the memory bandwidth, exits, picks that flip, and the choice of
    `auto`. The exit code is 1 if a model could not be measured, or if a pick flips that is not a near-tie.

    With --draft alone it loads a draft, a folder or a GGUF file, and times its forward passes by rows.

    With --robot it prints one line per check: ok, warn or FAIL, and the remedy; the exit code is 0 if none is FAIL.
    It only listens, reads parameters and connects to the verifier: nothing it does can move a robot.
    """
    if gpu and robot:
        raise UsageError("--gpu and --robot check different things: give one of them")
    if of_robot and not robot:
        raise UsageError("--namespace, --image, --odom, --cmd-vel, --verifier and --key are for --robot")
    if gpu:
        from specnav.doctor.gpu.config import GpuDoctorConfig
        from specnav.doctor.gpu.run import run_gpu_doctor
        from specnav.published.pairs import with_pair

        given = with_pair(named.get("pair"), given, target="model", draft="draft")
        raise typer.Exit(run_gpu_doctor(GpuDoctorConfig(**given)))
    if named or "model" in given or "variants" in given:
        raise UsageError("--pair, --model and --variants are for --gpu")
    if robot and "draft" in given:
        raise UsageError("--draft and --robot check different things: give one of them")
    kind = "--robot" if robot else "--draft" if "draft" in given else "alone"
    for name, where in WHERE.items():
        if name in given and kind not in where:
            raise UsageError(f"--{name} is for {where}: leave it out")
    if "draft" in given:
        from specnav.doctor.draft import run_draft_doctor

        raise typer.Exit(run_draft_doctor(given))
    if robot:
        from specnav.doctor.robot.config import RobotDoctorConfig
        from specnav.doctor.robot.run import run_robot_doctor

        shared = {name: given[name] for name in SHARED if name in given}
        raise typer.Exit(run_robot_doctor(RobotDoctorConfig(**of_robot, **shared)))
    from specnav.doctor.machine import run_doctor

    raise typer.Exit(run_doctor(given.get("json", False)))
