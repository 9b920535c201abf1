# SPDX-License-Identifier: Apache-2.0
"""`specnav keys …`: manages the keys in the folder that `specnav serve --keys FOLDER` reads."""

from __future__ import annotations

from typing import Any

import typer

from specnav.cli.from_settings import makes

keys_app = typer.Typer(
    no_args_is_help=True, help="Make, list, revoke and export the keys of a verifier's clients."
)


@keys_app.command(
    epilog="Examples:  specnav keys new robot-1 --class robot   |   "
    "specnav keys new night-runs --class batch --max-sessions 4 --messages-per-s 200 --keys /etc/specnav/keys"
)
@makes("asked", "specnav.keys:NewClient")
def new(asked: Any) -> None:
    """Make a key for a client; the first time, also the folder and the server's own key."""
    from specnav.keys import new_client

    new_client(asked)


@keys_app.command(
    name="list", epilog="Examples:  specnav keys list   |   specnav keys list --keys FOLDER --json"
)
@makes("printed", "specnav.settings:Printed")
@makes("where", "specnav.keys:Keys")
def list_(where: Any, printed: Any) -> None:
    """List the clients: class, quota, date and state. Shows nothing secret."""
    from specnav.keys import list_clients

    list_clients(where.keys, printed.json)


@keys_app.command(epilog="Example:  specnav keys revoke robot-1")
@makes("asked", "specnav.keys:OneClient")
def revoke(asked: Any) -> None:
    """Revoke a client's key: a running verifier ends its sessions within about a second."""
    from specnav.keys import revoke_client

    revoke_client(asked)


@keys_app.command(
    epilog="Examples:  specnav keys rotate robot-1 --grace-hours 24   |   "
    "specnav keys rotate robot-1 --grace-hours 0   |   specnav keys rotate --server"
)
@makes("asked", "specnav.keys:Rotated")
def rotate(asked: Any) -> None:
    """Replace a key by a new one; class and quota stay. Also readmits a revoked client."""
    from specnav.keys import rotate

    rotate(asked)


@keys_app.command(
    epilog="Examples:  specnav keys export robot-1 --to robot-1.key   |   "
    "specnav keys export robot-1 --forget | ssh robot 'umask 077; cat > verifier.key'"
)
@makes("asked", "specnav.keys:Exported")
def export(asked: Any) -> None:
    """Write the one file that the client's machine needs. It is secret: anyone who has it can act as that client."""
    from specnav.keys import export_client

    export_client(asked)
