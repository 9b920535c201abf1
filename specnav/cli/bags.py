"""`specnav replay`, `specnav record` and `specnav play`: the commands around bags."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from specnav.cli.options import (
    Device,
    Draft,
    ExitLayers,
    Exits,
    Gamma,
    Gguf,
    Key,
    Quantize,
    Seed,
    Target,
    Temperature,
)
from specnav.errors import UsageError


def add_bag_commands(app: typer.Typer) -> None:
    """Give the app the commands of this module."""
    app.command(
        epilog="Examples:  specnav replay walk.mcap   |   specnav replay walk/ --methods fsd,ar --labels truth.csv   "
        "|   specnav replay walk.mcap --methods sd --compare runs/replay-1"
    )(replay)
    app.command(
        epilog="Examples:  specnav record --out walk.mcap   |   specnav record --out walk.mcap /camera/color/image_raw "
        "/odom   |   specnav record --sim --episodes 3 --out rooms.mcap"
    )(record)
    app.command(
        epilog="Examples:  specnav play walk.mcap --clock   |   specnav play walk/ --rate 0.5 --loop   |   "
        "specnav play walk.mcap /camera/color/image_raw /odom --remap /odom:=/robot1/odom"
    )(play)


def need_rosbags() -> None:
    """Raise UsageError where the package is missing that reads bags."""
    try:
        import rosbags.rosbag2  # noqa: F401
    except ImportError as error:
        raise UsageError("bags need the package rosbags: pip install rosbags") from error


def replay(
    bag: Annotated[Path, typer.Argument(metavar="BAG", help="A rosbag2 folder, or an .mcap or .db3 file.")],
    image_topic: Annotated[
        str | None, typer.Option(help="The camera's topic (default: the only image topic in the bag).")
    ] = None,
    instruction: Annotated[
        str | None, typer.Option(help="What the robot was to do (default: as recorded in the bag).")
    ] = None,
    methods: Annotated[
        str, typer.Option("--methods", "--method", help="Comma-separated, side by side: fsd,ar,sd …")
    ] = "fsd",
    labels: Annotated[
        Path | None,
        typer.Option(
            metavar="CSV",
            help="Correct actions to score against, instead of the recorded ones: columns stamp,action.",
        ),
    ] = None,
    rate: Annotated[
        str,
        typer.Option(help="frames: one after the other, as fast as possible; bag: at the bag's own speed."),
    ] = "frames",
    every: Annotated[
        int, typer.Option(min=1, help="Decide only every N-th of the frames without a reference.")
    ] = 1,
    limit: Annotated[int | None, typer.Option(min=1, help="At most this many frames.")] = None,
    compare: Annotated[
        Path | None, typer.Option(metavar="RUN", help="Folder of an earlier replay to show beside this one.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder of the report (default: runs/replay-<time>).")
    ] = None,
    connect: Annotated[
        str | None, typer.Option(help="A verifier, tcp://HOST:PORT, or fleet://HOST:PORT (default: start one here).")
    ] = None,
    key: Key = None,
    target_model: Target = None,
    draft_model: Draft = None,
    gguf: Gguf = None,
    exits: Exits = None,
    exit_layers: ExitLayers = None,
    quantize: Quantize = "none",
    device: Device = "auto",
    gamma: Gamma = 4,
    temperature: Temperature = 0.0,
    seed: Seed = 0,
    max_new_tokens: Annotated[int, typer.Option(min=8, max=1024, help="Longest answer, tokens.")] = 96,
    prompt: Annotated[
        str, typer.Option(help="Prompt preset; auto: the one in the draft model's folder.")
    ] = "auto",
    answer_grammar: Annotated[
        str, typer.Option(help="off, or actions: every answer ends in an action sentence.")
    ] = "off",
    robot_config: Annotated[
        Path | None,
        typer.Option(
            help="The robot's parameter file, for the size of its pictures (default: config/robot.yaml)."
        ),
    ] = None,
) -> None:
    """Decide a bag's camera frames again, without ROS, and score the decisions."""
    need_rosbags()
    from specnav.replay.config import ReplayConfig
    from specnav.replay.run import run_replay

    config = ReplayConfig(
        bag=bag,
        image_topic=image_topic,
        instruction=instruction,
        methods=tuple(name.strip() for name in methods.split(",") if name.strip()),
        labels=labels,
        rate=rate,
        every=every,
        limit=limit,
        compare=compare,
        out=out,
        connect=connect,
        key=key,
        target_model=target_model or ReplayConfig.target_model,
        draft_model=draft_model or ReplayConfig.draft_model,
        gguf=gguf or "",
        exits=exits or "",
        exit_layers=exit_layers or "auto",
        quantize=quantize,
        device=device,
        gamma=gamma,
        temperature=temperature,
        seed=seed,
        max_new_tokens=max_new_tokens,
        prompt=prompt,
        answer_grammar=answer_grammar,
        robot_config=robot_config or ReplayConfig.robot_config,
    )
    raise typer.Exit(run_replay(config))


def record(
    out: Annotated[Path, typer.Option(metavar="FILE.mcap", help="The file to write.")],
    topics: Annotated[
        list[str] | None,
        typer.Argument(metavar="[TOPIC]…", help="Topics (default: cameras, odometry, velocities, ours)."),
    ] = None,
    duration: Annotated[
        float | None, typer.Option(min=0.1, help="Stop after this many seconds (default: on Ctrl-C).")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")] = False,
    sim: Annotated[
        bool,
        typer.Option("--sim", help="Record simulated episodes instead, without ROS; also writes labels."),
    ] = False,
    episodes: Annotated[
        int, typer.Option(min=1, max=1000, help="With --sim: instructions to carry out.")
    ] = 2,
    seed: Annotated[
        int, typer.Option(min=0, max=2**31 - 1, help="With --sim: seed of the first episode.")
    ] = 0,
    split: Annotated[str, typer.Option(help="With --sim: heldout or train.")] = "heldout",
    about: Annotated[
        str,
        typer.Option(metavar="WORD,…", help="With --sim: only targets of these kinds and colours, as lamp,pink."),
    ] = "",
    target_model: Target = None,
) -> None:
    """Write a robot's topics (camera, odometry, velocities, instruction, actions, metrics) into one mcap file."""
    need_rosbags()
    from specnav.bags.writing import check_name

    check_name(out, force)
    if sim:
        if topics:
            raise UsageError("--sim records its own topics; leave the names out")
        from specnav.paths import DEFAULT_TARGET
        from specnav.record.run import run_simulated
        from specnav.record.simulated import SimulatedConfig

        config = SimulatedConfig(
            out,
            Path(target_model) if target_model else DEFAULT_TARGET,
            episodes,
            seed,
            split,
            replace=force,
            about=tuple(word.strip() for word in about.split(",") if word.strip()),
        )
        raise typer.Exit(run_simulated(config))
    from specnav.record.run import run_live

    raise typer.Exit(run_live(out, tuple(topics or ()), duration, force))


def play(
    bag: Annotated[Path, typer.Argument(metavar="BAG", help="A rosbag2 folder, or an .mcap or .db3 file.")],
    topics: Annotated[
        list[str] | None,
        typer.Argument(metavar="[TOPIC]…", help="Topics (default: cameras, sensors, odometry, instruction)."),
    ] = None,
    rate: Annotated[
        float, typer.Option(min=0.01, max=100.0, help="Playback speed, as a multiple of the bag's own.")
    ] = 1.0,
    loop: Annotated[bool, typer.Option("--loop", help="Repeat until Ctrl-C.")] = False,
    clock: Annotated[
        bool, typer.Option("--clock", help="Publish /clock with the bag's time, for nodes with use_sim_time.")
    ] = False,
    remap: Annotated[
        list[str] | None, typer.Option(metavar="/OLD:=/NEW", help="Publish a topic under another name.")
    ] = None,
    wait: Annotated[
        float,
        typer.Option(min=0.0, help="Wait up to this many seconds for a subscriber on each topic."),
    ] = 5.0,
) -> None:
    """Publish a bag's messages into a running ROS graph; topics that could move a robot only if you name them."""
    need_rosbags()
    from specnav.play.run import run_play

    raise typer.Exit(run_play(bag, tuple(topics or ()), tuple(remap or ()), rate, loop, clock, wait))
