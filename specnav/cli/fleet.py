# SPDX-License-Identifier: Apache-2.0
"""`specnav fleet …`: many verifiers as one, on Ray."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from specnav.cli.from_settings import takes
from specnav.cli.options import SHIPPED_TARGET

fleet_app = typer.Typer(
    no_args_is_help=True,
    help="A fleet of verifiers on Ray: edges know one address, answers go on when a verifier or a machine dies.",
)

UP = "specnav.fleet.settings:UpConfig"
UPGRADE = "specnav.fleet.settings:UpgradeConfig"
WHERE = "specnav.fleet.settings:Where"
SERVER = "cloud_verifier.config:ServerConfig"
OF_THE_FLEET = ("bind", "metrics")
"""Settings of a verifier that the fleet decides on for each replica."""
AS_BEFORE = {"model": {"default": None, "shown": "as before"}}


@fleet_app.command(
    epilog="Examples:  specnav fleet up --replicas 2   |   "
    "specnav fleet up --ray 10.0.0.5:6379 --replicas 2:8 --model Qwen/Qwen2-VL-7B-Instruct --engine vllm --keys keys"
)
@takes("given", UP)
@takes("server", SERVER, leave_out=OF_THE_FLEET, changes=SHIPPED_TARGET)
def up(given: dict[str, Any], server: dict[str, Any]) -> None:
    """Start a directory and replicas, wait until they serve, and leave them running. Prints the address for edges.

    Beside its own options it takes those of specnav serve, for every replica.
    """
    from specnav.fleet.run import run_up
    from specnav.fleet.settings import UpConfig

    raise typer.Exit(run_up(UpConfig(server, **given)))


@fleet_app.command(
    epilog="Examples:  specnav fleet status   |   specnav fleet status --ray 10.0.0.5:6379 --json"
)
@takes("given", WHERE, leave_out=("wait_s",))
def status(
    given: dict[str, Any],
    as_json: Annotated[bool, typer.Option("--json", help="Machine-readable output.")] = False,
) -> None:
    """Show replicas, their load and what is wrong; exit code 1 where fewer serve than are wanted."""
    from specnav.fleet.run import run_status
    from specnav.fleet.settings import Where

    raise typer.Exit(run_status(Where(**given), as_json))


@fleet_app.command(epilog="Examples:  specnav fleet scale 4   |   specnav fleet scale 2:8")
@takes("given", WHERE)
def scale(
    given: dict[str, Any],
    replicas: Annotated[str, typer.Argument(metavar="N|LEAST:MOST", help="Verifiers.")],
) -> None:
    """Change the number of replicas; those that go end their answers first."""
    from specnav.fleet.run import run_scale
    from specnav.fleet.settings import Where

    raise typer.Exit(run_scale(Where(**given), replicas))


@fleet_app.command(
    epilog="Examples:  specnav fleet upgrade   |   specnav fleet upgrade --model models/target-2   |   "
    "specnav fleet upgrade --quantize 4bit --no-surge"
)
@takes("given", UPGRADE)
@takes("server", SERVER, leave_out=(*OF_THE_FLEET, "keys", "insecure"), changes=AS_BEFORE)
def upgrade(given: dict[str, Any], server: dict[str, Any]) -> None:
    """Replace all replicas one after another, with the settings given here or the same ones; answers go on."""
    from specnav.fleet.run import run_upgrade
    from specnav.fleet.settings import UpgradeConfig

    raise typer.Exit(run_upgrade(UpgradeConfig(server, **given)))


@fleet_app.command(epilog="Example:  specnav fleet down")
@takes("given", WHERE, leave_out=("wait_s",))
def down(given: dict[str, Any]) -> None:
    """End all replicas and the directory, and Ray where `up` has started it."""
    from specnav.fleet.run import run_down
    from specnav.fleet.settings import Where

    raise typer.Exit(run_down(Where(**given)))
