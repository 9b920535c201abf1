"""`specnav top`: a running verifier, second by second."""

from __future__ import annotations

from typing import Annotated

import typer

from specnav.cli.options import METRICS


def add_top_command(app: typer.Typer) -> None:
    """Give the app the command of this module."""
    app.command(
        epilog="Examples:  specnav top   |   specnav top 192.168.1.10:9464 --interval 5   |   "
        "specnav top --once   |   the verifier:  specnav serve --metrics 127.0.0.1:9464"
    )(top)


def top(
    address: Annotated[
        str, typer.Argument(metavar="[HOST:PORT]", help="Where the verifier's --metrics listens.")
    ] = METRICS,
    interval: Annotated[
        float, typer.Option(min=0.1, max=3600, metavar="S", help="Time between two looks, s.")
    ] = 1.0,
    once: Annotated[
        bool, typer.Option("--once", help="One snapshot, its rates over one interval, and end.")
    ] = False,
) -> None:
    """Watch a verifier: throughput, batch, times, acceptance, memory, refusals, and a row for each client.

    Ctrl-C ends it. A verifier that goes away is waited for.
    """
    from specnav.top.run import TopConfig, run_top

    raise typer.Exit(run_top(TopConfig(address, interval, once)))
