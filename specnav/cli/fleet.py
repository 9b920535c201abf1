# SPDX-License-Identifier: Apache-2.0
"""`specnav fleet …`: several verifiers behind one address, on Ray."""

from __future__ import annotations

from typing import Any

import typer

from specnav.cli.from_settings import SHIPPED_TARGET, makes, takes

fleet_app = typer.Typer(
    no_args_is_help=True,
    help="A fleet of verifiers on Ray: edges use one address, and answers continue when a verifier or a machine dies.",
)

WHERE = "specnav.fleet.settings:Where"
SERVER = "cloud_verifier.config:ServerConfig"
OF_THE_FLEET = ("bind", "metrics")
"""Settings of a verifier that the fleet sets for each replica."""
AS_BEFORE = {"model": {"default": None, "shown": "as before"}}


@fleet_app.command(
    epilog="Examples:  specnav fleet up --replicas 2   |   "
    "specnav fleet up --ray 10.0.0.5:6379 --replicas 2:8 --model Qwen/Qwen2-VL-7B-Instruct --engine vllm --keys keys"
)
@takes("given", "specnav.fleet.settings:UpConfig")
@takes("server", SERVER, leave_out=OF_THE_FLEET, changes=SHIPPED_TARGET)
def up(given: dict[str, Any], server: dict[str, Any]) -> None:
    """Start a directory and replicas, wait until they serve, and leave them running. Prints the address for edges.

    In addition to its own options it takes those of specnav serve, for every replica.
    """
    from specnav.fleet.run import run_up
    from specnav.fleet.settings import UpConfig

    raise typer.Exit(run_up(UpConfig(server, **given)))


@fleet_app.command(
    epilog="Examples:  specnav fleet status   |   specnav fleet status --ray 10.0.0.5:6379 --json"
)
@makes("printed", "specnav.settings:Printed")
@makes("where", WHERE, leave_out=("wait_s",))
def status(where: Any, printed: Any) -> None:
    """Show replicas, their load and problems; exit code 1 if fewer serve than are wanted."""
    from specnav.fleet.run import run_status

    raise typer.Exit(run_status(where, printed.json))


@fleet_app.command(epilog="Examples:  specnav fleet scale 4   |   specnav fleet scale 2:8")
@makes("config", "specnav.fleet.settings:ScaleConfig")
def scale(config: Any) -> None:
    """Change the number of replicas; removed ones finish their answers first."""
    from specnav.fleet.run import run_scale

    raise typer.Exit(run_scale(config))


@fleet_app.command(
    epilog="Examples:  specnav fleet upgrade   |   specnav fleet upgrade --model models/target-2   |   "
    "specnav fleet upgrade --quantize 4bit --no-surge"
)
@takes("given", "specnav.fleet.settings:UpgradeConfig")
@takes("server", SERVER, leave_out=(*OF_THE_FLEET, "keys", "insecure"), changes=AS_BEFORE)
def upgrade(given: dict[str, Any], server: dict[str, Any]) -> None:
    """Replace all replicas one by one, with new settings or the same ones; answers continue."""
    from specnav.fleet.run import run_upgrade
    from specnav.fleet.settings import UpgradeConfig

    raise typer.Exit(run_upgrade(UpgradeConfig(server, **given)))


@fleet_app.command(epilog="Example:  specnav fleet down")
@makes("where", WHERE, leave_out=("wait_s",))
def down(where: Any) -> None:
    """Stop all replicas and the directory, and Ray if `up` started it."""
    from specnav.fleet.run import run_down

    raise typer.Exit(run_down(where))
