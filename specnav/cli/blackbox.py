# SPDX-License-Identifier: Apache-2.0
"""`specnav blackbox` lists the robot's black-box files; `specnav console --bag` shows a recorded walk."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from specnav.cli.bags import need_rosbags
from specnav.cli.from_settings import makes, path


def add_blackbox_command(app: typer.Typer) -> None:
    """Add the commands of this module to the app."""
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
            metavar="FOLDER", help="Folder with the files (default: where blackbox_node writes them).", parser=path
        ),
    ] = None,
    show: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Print the timeline of one file.", parser=path),
    ] = None,
) -> None:
    """List what the robot's black box has written, or show one file as a timeline."""
    need_rosbags()
    from specnav.blackbox.run import list_files, show_file

    raise typer.Exit(list_files(folder) if show is None else show_file(show, folder))


@makes("who", "specnav.lookback.config:Deciders")
@makes("asked", "specnav.lookback.config:LookBack")
def console(asked: Any, who: Any) -> None:
    """Review a recorded walk in the browser, without ROS: pictures, decisions, tokens, times, events on one timeline.
    Decide again with another method or other models and see the differences; label the right actions for specnav
    replay --labels; save clips.

    The page for a live robot is a ROS node: ros2 launch spec_vlm_nav console.launch.py, or specnav demo --console.
    """
    need_rosbags()
    from specnav.lookback.run import look_back

    raise typer.Exit(look_back(asked, who))
