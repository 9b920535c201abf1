# SPDX-License-Identifier: Apache-2.0
"""`specnav replay`, `specnav record` and `specnav play`: the commands around bags."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from specnav.cli.from_settings import takes
from specnav.cli.options import Target
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


@takes("given", "specnav.replay.config:ReplayConfig")
def replay(given: dict[str, Any]) -> None:
    """Decide a bag's camera frames again, without ROS, and score the decisions."""
    need_rosbags()
    from specnav.replay.config import ReplayConfig
    from specnav.replay.run import run_replay

    raise typer.Exit(run_replay(ReplayConfig(**given)))


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


@takes("given", "specnav.play.config:PlayConfig")
def play(given: dict[str, Any]) -> None:
    """Publish a bag's messages into a running ROS graph; topics that could move a robot only if you name them."""
    need_rosbags()
    from specnav.play.config import PlayConfig
    from specnav.play.run import run_play

    raise typer.Exit(run_play(PlayConfig(**given)))
