# SPDX-License-Identifier: Apache-2.0
"""`specnav plan`, `convert` and `models`: what models and fleets need, model formats, and published models."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from specnav.cli.from_settings import EDGE, makes, takes
from specnav.errors import UsageError

plan_app = typer.Typer(
    no_args_is_help=True, help="Estimate what models and fleets need, before anything is loaded."
)
convert_app = typer.Typer(no_args_is_help=True, help="Convert a model into another engine's format.")
models_app = typer.Typer(no_args_is_help=True, help="Published models: list and download them.")


@plan_app.callback()
def plan() -> None:
    """Estimate what models and fleets need, before anything is loaded."""


@plan_app.command(
    epilog="Examples:  specnav plan memory --target Qwen/Qwen2-VL-7B-Instruct --draft Qwen/Qwen2-VL-2B-Instruct "
    "--clients 8   |   specnav plan memory --pair qwen2-vl   |   "
    "specnav plan memory --target Qwen/Qwen2-VL-7B-Instruct --quantize 4bit --gb 16 --clients 20"
)
@takes("named", EDGE, only=("pair",))
@takes("given", "specnav.plan.run:PlanConfig", changes={"target": {"default": None, "shown": "the pair's"}})
def memory(given: dict[str, Any], named: dict[str, str]) -> None:
    """Estimate the memory of edge and cloud, from the models' configurations alone."""
    from specnav.plan.run import PlanConfig, run_plan_memory
    from specnav.published.pairs import with_pair

    given = with_pair(named.get("pair"), given, target="target", draft="draft")
    if "target" not in given:
        raise UsageError("name the target with --target, or a pair with --pair")
    raise typer.Exit(run_plan_memory(PlanConfig(**given)))


@plan_app.command(
    epilog="Examples:  specnav plan fleet --robots 1000 --rate 0.2 --gpu a100 --link wifi6   |   specnav plan fleet "
    "--gpu specedge-32b --link lte --p95-ms 6000 --methods ar,specedge --gpus 40   |   specnav plan fleet --measured "
    "runs/batch --draft-ms 8   |   specnav plan fleet --against runs/clients-20260101-120000/clients.json"
)
@makes("config", "specnav.plan.fleet:FleetConfig")
def fleet(config: Any) -> None:
    """Simulate a fleet: GPUs needed for robots, by method, for a promised p95. Nothing is measured, no model
    loaded.
    """
    from specnav.plan.fleet import run_against, run_plan_fleet

    raise typer.Exit(run_against(config.against, config) if config.against else run_plan_fleet(config))


@convert_app.callback()
def convert() -> None:
    """Convert a model into another engine's format."""


@convert_app.command(
    epilog="Examples:  specnav convert gguf default_models/nav-draft   |   "
    "specnav convert gguf models/Qwen2-VL-2B-Instruct --type q4_0 --out models/qwen2-vl-2b-q4_0.gguf"
)
@makes("config", "specnav.convert.run:ConvertConfig")
def gguf(config: Any) -> None:
    """Convert a folder to a GGUF file, for drafting on llama.cpp; every number is read back and compared.

    The vision tower of a model that takes pictures goes into a separate file next to it, mmproj-….gguf. A file gets
    its name only after it was checked.
    """
    from specnav.convert.run import run_convert

    raise typer.Exit(run_convert(config))


@models_app.callback()
def models() -> None:
    """Published models: list and download them."""


@models_app.command("list", epilog="Example:  specnav models list")
def list_models() -> None:
    """List the named models and pairs, where they come from, and which are on this machine."""
    from specnav.published.table import shown_models

    for line in shown_models():
        typer.echo(line)


@models_app.command(epilog="Example:  specnav models get smollm2")
def get(name: Annotated[str, typer.Argument(help="A name that `specnav models list` shows.")]) -> None:
    """Download a model into this user's cache, check it and convert it; prints its path.

    An interrupted download leaves nothing behind. A model in the cache is not downloaded again.
    """
    from specnav.published.getting import get_model

    typer.echo(get_model(name))
