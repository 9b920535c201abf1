# SPDX-License-Identifier: Apache-2.0
"""`specnav api`, an HTTP server at the edge, and `specnav top`, which watches a running verifier."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from specnav.cli.from_settings import makes, takes
from specnav.errors import UsageError


def add_serving_commands(app: typer.Typer) -> None:
    """Add the commands of this module to the app."""
    app.command(
        epilog="Examples:  specnav api --connect tcp://CLOUD:5555 --key edge-1.key "
        "--draft-model Qwen/Qwen2-VL-2B-Instruct   |   "
        "specnav api --new-key laptop --api-keys api.keys   |   "
        "specnav api --connect tcp://127.0.0.1:5555 --bind 0.0.0.0:8000 --api-keys api.keys   |   "
        "curl http://127.0.0.1:8000/v1/models"
    )(api)
    app.command(
        epilog="Examples:  specnav top   |   specnav top 192.168.1.10:9464 --interval 5   |   "
        "specnav top --once   |   the verifier:  specnav serve --metrics 127.0.0.1:9464"
    )(top)


@makes("config", "specnav.top.run:TopConfig")
def top(config: Any) -> None:
    """Watch a verifier: throughput, batch, times, acceptance, memory, refusals, and a row for each client.

    Ctrl-C ends it. If the verifier goes away, it waits.
    """
    from specnav.top.run import run_top

    raise typer.Exit(run_top(config))


@takes(
    "given", "specnav.api.config:ApiConfig", changes={"connect": {"default": None, "shown": "must be given"}}
)
def api(
    given: dict[str, Any],
    new_key: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="Make an API key, print it once, store its hash in --api-keys, and exit."
        ),
    ] = None,
) -> None:
    """Serve an OpenAI-compatible HTTP API at the edge: drafts are made here, and the verifier decides every token.

    Needs the packages of the extra `api`. SIGINT or SIGTERM ends it.
    """
    from specnav.api.config import ApiConfig
    from specnav.api.run import make_key, run_api

    if new_key is not None:
        raise typer.Exit(make_key(given.get("api_keys"), new_key))
    if "connect" not in given:
        raise UsageError("give the verifier's address: --connect tcp://HOST:PORT (specnav serve starts one)")
    raise typer.Exit(run_api(ApiConfig(**given)))
