# SPDX-License-Identifier: Apache-2.0
"""`specnav keys …`: who may use a verifier. Works on the folder that `specnav serve --keys FOLDER` reads."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

keys_app = typer.Typer(
    no_args_is_help=True, help="Make, list, revoke and hand out the keys of a verifier's clients."
)

Folder = Annotated[
    Path,
    typer.Option("--keys", metavar="FOLDER", help="Folder of keys; a running verifier sees every change."),
]
Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of the client.")]
DEFAULT_FOLDER = Path("keys")


@keys_app.command(
    epilog="Examples:  specnav keys new robot-1 --class robot   |   "
    "specnav keys new night-runs --class batch --max-sessions 4 --messages-per-s 200 --keys /etc/specnav/keys"
)
def new(
    name: Name,
    client_class: Annotated[
        str, typer.Option("--class", help="Whose work comes first: robot, then interactive, then batch.")
    ] = "interactive",
    max_sessions: Annotated[
        int | None, typer.Option(min=1, max=100_000, help="Sessions at a time (default: the server's bound).")
    ] = None,
    messages_per_s: Annotated[
        float | None,
        typer.Option(min=1, max=1_000_000, help="Messages a second (default: the server's bound)."),
    ] = None,
    queued_mb: Annotated[
        float | None,
        typer.Option(min=0.001, max=100_000, help="Megabytes that may wait (default: the server's bound)."),
    ] = None,
    keys: Folder = DEFAULT_FOLDER,
) -> None:
    """Make a key for a client, and the folder with the server's own key where there is none yet."""
    from specnav.keys import new_client

    new_client(keys, name, client_class, max_sessions, messages_per_s, queued_mb)


@keys_app.command(
    name="list", epilog="Examples:  specnav keys list   |   specnav keys list --keys FOLDER --json"
)
def list_(
    keys: Folder = DEFAULT_FOLDER,
    as_json: Annotated[bool, typer.Option("--json", help="Machine-readable output.")] = False,
) -> None:
    """List the clients: class, quota, since when, revoked or not. Shows nothing secret."""
    from specnav.keys import list_clients

    list_clients(keys, as_json)


@keys_app.command(epilog="Example:  specnav keys revoke robot-1")
def revoke(name: Name, keys: Folder = DEFAULT_FOLDER) -> None:
    """Shut a client out: a running verifier ends its sessions within about a second."""
    from specnav.keys import revoke_client

    revoke_client(keys, name)


@keys_app.command(
    epilog="Examples:  specnav keys rotate robot-1 --grace-hours 24   |   "
    "specnav keys rotate robot-1 --grace-hours 0   |   specnav keys rotate --server"
)
def rotate(
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="Name of the client.")] = None,
    server: Annotated[
        bool, typer.Option("--server", help="The verifier's own key: it is used from its next start on.")
    ] = False,
    grace_hours: Annotated[
        float, typer.Option(min=0, max=8760, help="The client's previous key stays valid for this long, h.")
    ] = 24.0,
    keys: Folder = DEFAULT_FOLDER,
) -> None:
    """Replace a key by a new one; class and quota stay. Also lets a revoked client in again."""
    from specnav.errors import UsageError
    from specnav.keys import rotate_client, rotate_server

    if server == (name is not None):
        raise UsageError("give the NAME of a client, or --server")
    if name is None:
        rotate_server(keys)
    else:
        rotate_client(keys, name, grace_hours)


@keys_app.command(
    epilog="Examples:  specnav keys export robot-1 --to robot-1.key   |   "
    "specnav keys export robot-1 --forget | ssh robot 'umask 077; cat > verifier.key'"
)
def export(
    name: Name,
    to: Annotated[
        Path | None, typer.Option(metavar="FILE", help="File to write, mode 0600 (default: stdout).")
    ] = None,
    forget: Annotated[
        bool, typer.Option("--forget", help="Keep the client's secret here no longer.")
    ] = False,
    keys: Folder = DEFAULT_FOLDER,
) -> None:
    """Write the one file that the client's machine needs. It is secret: who has it can act as that client."""
    from specnav.keys import export_client

    export_client(keys, name, to, forget)
