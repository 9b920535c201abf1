# SPDX-License-Identifier: Apache-2.0
"""`specnav replay`, `specnav record` and `specnav play`: commands for bags."""

from __future__ import annotations

from typing import Any

import typer

from specnav.cli.from_settings import EDGE, PAIR, makes, takes
from specnav.errors import UsageError, needs_ros


def add_bag_commands(app: typer.Typer) -> None:
    """Add the commands of this module to the app."""
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
    """Raise UsageError if the package that reads bags is missing."""
    try:
        import rosbags.rosbag2  # noqa: F401
    except ImportError as error:
        raise UsageError("bags need the package rosbags: pip install rosbags") from error


@takes("named", EDGE, only=("pair",), changes=PAIR)
@takes("given", "specnav.replay.config:ReplayConfig")
def replay(given: dict[str, Any], named: dict[str, str]) -> None:
    """Decide a bag's camera frames again, without ROS, and score the decisions."""
    need_rosbags()
    from specnav.published.pairs import with_pair
    from specnav.replay.config import ReplayConfig
    from specnav.replay.run import run_replay

    config = ReplayConfig(**with_pair(named.get("pair"), given, exits="exits", sees=True))
    raise typer.Exit(run_replay(config))


@makes("config", "specnav.record.config:RecordConfig")
def record(config: Any) -> None:
    """Write a robot's topics (camera, odometry, velocities, instruction, actions, metrics) into one mcap file."""
    need_rosbags()
    from specnav.record.run import run_record

    raise typer.Exit(run_record(config))


@makes("config", "specnav.play.config:PlayConfig")
def play(config: Any) -> None:
    """Publish a bag's messages into a running ROS graph; velocities and motion commands only if they are named."""
    need_rosbags()
    with needs_ros("playing a bag", "specnav replay decides a bag's frames"):
        from specnav.play.live import play as play_live
    from specnav.terminal import RunView

    raise typer.Exit(play_live(config, RunView().say))
