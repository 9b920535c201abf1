# SPDX-License-Identifier: Apache-2.0
"""`specnav blackbox`, what the robot's black box has written, and `specnav console --bag`, a walk looked at again."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from specnav.cli.bags import need_rosbags
from specnav.cli.from_settings import takes
from specnav.errors import UsageError

FILES = ("key", "target_model", "draft_model")
"""Of the options of `specnav console`: what may be a path."""


def add_blackbox_command(app: typer.Typer) -> None:
    """Give the app the command of this module."""
    app.command(
        epilog="Examples:  specnav blackbox   |   specnav blackbox /data/blackbox   |   "
        "specnav blackbox --show blackbox-20260102-030405Z-NO_RESPONSE.mcap   |   "
        "specnav replay ~/.ros/spec_vlm_nav/blackbox/blackbox-20260102-030405Z-NO_RESPONSE.mcap"
    )(blackbox)
    app.command(
        epilog="Examples:  specnav console --bag walk.mcap   |   "
        "specnav console --bag blackbox.mcap --labels right.csv   |   "
        "specnav console --bag walk.mcap --again sd   |   "
        "specnav console --bag walk.mcap --clip part.mp4 --from 10 --to 20"
    )(console)


def blackbox(
    folder: Annotated[
        Path | None,
        typer.Argument(
            metavar="FOLDER", help="Folder with the files (default: where blackbox_node writes them)."
        ),
    ] = None,
    show: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Print what happened in one of the files, line by line."),
    ] = None,
) -> None:
    """List what the robot's black box has written, or show one file as a timeline."""
    need_rosbags()
    from specnav.blackbox.run import list_files, show_file

    raise typer.Exit(list_files(folder) if show is None else show_file(show, folder))


@takes("who", "specnav.lookback.replay_runner:Deciders")
def console(
    who: dict[str, str],
    bag: Annotated[
        Path,
        typer.Option(
            metavar="BAG", help="A .mcap or .db3 file, a bag's folder, a black-box file, or a run's folder."
        ),
    ],
    labels: Annotated[
        Path | None, typer.Option(metavar="FILE.csv", help="Where labels are kept (default: beside the bag).")
    ] = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port on this machine; 0: a free one.")] = 8766,
    again: Annotated[
        str | None,
        typer.Option(metavar="METHOD", help="Decide again with this method, which the page can do, too."),
    ] = None,
    clip: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write a clip, .mp4 or .gif, instead of opening the page.")
    ] = None,
    begin: Annotated[float, typer.Option("--from", min=0, help="With --clip: where it begins, s.")] = 0.0,
    end: Annotated[float, typer.Option("--to", min=0, help="With --clip: where it ends, s.")] = 1e9,
) -> None:
    """Look at a recorded walk again in the browser, without ROS: pictures, decisions, tokens, times and events on one
    timeline; decide again with another method or other models and see where they differ; label what would have been
    right, for specnav replay --labels; save clips.

    The page for a live robot is a ROS node: ros2 launch spec_vlm_nav console.launch.py, or specnav demo --console.
    """
    need_rosbags()
    from specnav.lookback.replay_runner import Deciders
    from specnav.lookback.run import look_back

    if "key" in who and "connect" not in who:
        raise UsageError("--key is for a verifier that runs elsewhere: name it with --connect")
    deciders = Deciders(**{name: _whole(value) if name in FILES else value for name, value in who.items()})
    window = begin, end
    raise typer.Exit(look_back(bag, labels, port, deciders.image_topic or None, clip, window, deciders, again))


def _whole(place: str) -> str:
    """A file or folder wherever the replay runs; a hub's name as it is."""
    return str(Path(place).resolve()) if place and Path(place).exists() else place
