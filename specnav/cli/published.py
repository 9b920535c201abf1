# SPDX-License-Identifier: Apache-2.0
"""`specnav models`: published models by short names."""

from __future__ import annotations

from typing import Annotated

import typer

models_app = typer.Typer(no_args_is_help=True, help="Published models: list and download them.")


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
