"""`specnav blackbox`: what the robot's black box has written."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from specnav.cli.bags import need_rosbags


def add_blackbox_command(app: typer.Typer) -> None:
    """Give the app the command of this module."""
    app.command(
        epilog="Examples:  specnav blackbox   |   specnav blackbox /data/blackbox   |   "
        "specnav blackbox --show blackbox-20260102-030405Z-NO_RESPONSE.mcap   |   "
        "specnav replay ~/.ros/spec_vlm_nav/blackbox/blackbox-20260102-030405Z-NO_RESPONSE.mcap"
    )(blackbox)


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
