"""`specnav doctor`: what this machine can run, and what a live ROS graph is like."""

from __future__ import annotations

from typing import Annotated

import typer

from specnav.errors import UsageError
from specnav.paths import DEFAULT_DRAFT, DEFAULT_TARGET


def add_doctor_command(app: typer.Typer) -> None:
    """Give the app the command of this module."""
    app.command(
        epilog="Examples:  specnav doctor   |   specnav doctor --robot   |   "
        "specnav doctor --robot --namespace robot1 --image /front/compressed --seconds 10   |   "
        "specnav doctor --robot --verifier tcp://192.168.1.10:5555 --json   |   "
        "specnav doctor --draft drafts/qwen2-vl-2b-q4_0.gguf   |   "
        "specnav doctor --gpu --model Qwen/Qwen2-VL-7B-Instruct --draft Qwen/Qwen2-VL-2B-Instruct --json > gpu.json"
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
        str,
        typer.Option(metavar="ADDRESS", help="With --robot: tcp:// or fleet://HOST:PORT (default: vlm_nav_node's)."),
    ] = "",
    key: Annotated[
        str,
        typer.Option(metavar="FILE", help="With --robot: key for the verifier (default: vlm_nav_node's)."),
    ] = "",
    gpu: Annotated[bool, typer.Option("--gpu", help="Measure a pair of models on this device.")] = False,
    model: Annotated[
        str,
        typer.Option(
            metavar="FOLDER|HUB_ID", help="With --gpu: the target (default: the pair that is shipped)."
        ),
    ] = "",
    draft: Annotated[
        str,
        typer.Option(
            metavar="FILE|FOLDER|HUB_ID",
            help="What a token of this draft takes here, in two seconds; with --gpu: the pair's draft model.",
        ),
    ] = "",
    device: Annotated[str, typer.Option(help="With --gpu or --draft: auto, cpu, cuda or cuda:1.")] = "auto",
    variants: Annotated[
        str,
        typer.Option(
            metavar="A,B,...",
            help="With --gpu: float32, bfloat16, float16, 8bit, 4bit (default: what is usual on the device).",
        ),
    ] = "",
    rows: Annotated[
        str,
        typer.Option(
            metavar="N,N,...",
            help="Rows of forwards (with --gpu 1,2,4,6,8,16,32; with --draft alone 1,2,4,8).",
        ),
    ] = "",
    contexts: Annotated[
        str, typer.Option(metavar="N,N,...", help="With --gpu: tokens before them.")
    ] = "256,2048",
    gamma: Annotated[int, typer.Option(min=1, max=64, help="With --gpu: tokens of a draft.")] = 5,
    seconds: Annotated[
        float | None,
        typer.Option(
            min=1.0,
            max=600.0,
            help="How long to measure rates (--robot: 4), a model (--gpu: 4) or a draft (--draft: 2), s.",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Machine-readable output.")] = False,
) -> None:
    """Check what this machine can run, with --robot what keeps a live robot from moving, and what to do about it.

    With --gpu it loads a pair of models in several number types and measures them: memory against the plan, forwards by
    rows and context against what the memory's bandwidth allows, exits, picks that flip, and what `auto` would choose.
    The exit code is 1 where a model could not be measured or a pick flips that is no near-tie.

    With --draft alone it loads a draft, a folder or a GGUF file, and tells what forwards of it take by their rows.

    With --robot it prints one line per check: ok, warn or FAIL, and the remedy; the exit code is 0 if none is FAIL.
    It only listens, reads parameters and greets the verifier: nothing it does can move a robot.
    """
    if gpu and robot:
        raise UsageError("--gpu and --robot look at different things: give one of them")
    if gpu:
        from specnav.doctor.gpu.run import GpuDoctorConfig, run_gpu_doctor

        measuring = GpuDoctorConfig(
            model=model or str(DEFAULT_TARGET),
            draft=draft or str(DEFAULT_DRAFT),
            device=device,
            variants=tuple(filter(None, variants.split(","))),
            rows=_numbers("--rows", rows or "1,2,4,6,8,16,32"),
            contexts=_numbers("--contexts", contexts),
            gamma=gamma,
            seconds=seconds or 4.0,
            json=as_json,
        )
        raise typer.Exit(run_gpu_doctor(measuring))
    if model or variants:
        raise UsageError("--model and --variants are for --gpu")
    if draft:
        if robot:
            raise UsageError("--draft and --robot look at different things: give one of them")
        from specnav.doctor.draft import ROWS, SECONDS, run_draft_doctor

        counts = _numbers("--rows", rows) if rows else ROWS
        raise typer.Exit(run_draft_doctor(draft, device, counts, seconds or SECONDS, as_json))
    if robot:
        from specnav.doctor.robot.config import RobotDoctorConfig
        from specnav.doctor.robot.run import run_robot_doctor

        config = RobotDoctorConfig(namespace, image, odom, cmd_vel, verifier, key, seconds or 4.0, as_json)
        raise typer.Exit(run_robot_doctor(config))
    if namespace or image or odom or cmd_vel or verifier or key:
        raise UsageError("--namespace, --image, --odom, --cmd-vel, --verifier and --key are for --robot")
    from specnav.doctor.machine import run_doctor

    raise typer.Exit(run_doctor(as_json))


def _numbers(flag: str, text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise UsageError(f"{flag} {text!r} is no list of numbers: give one like 1,4,8") from None
