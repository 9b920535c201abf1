# SPDX-License-Identifier: Apache-2.0
"""`specnav train …`: commands that train the default models; each continues where a killed run stopped."""

from __future__ import annotations

from typing import Any

import typer

from specnav.cli.from_settings import takes

train_app = typer.Typer(
    no_args_is_help=True, help="Train the default models, and drafts and early exits for any target."
)

MINUTES = "specnav.recipes.settings:TrainingSettings"
BESIDE = {"run": {"default": None, "shown": "OUT.run"}}


def _with_a_run(given: dict[str, Any]) -> dict[str, Any]:
    """Add a run folder next to `out` if none is given."""
    place = given["out"].resolve()
    return {"run": place.parent / f"{place.name}.run", **given}


@train_app.command(
    "vlm", epilog="Examples:  specnav train vlm   |   specnav train vlm --out runs/pair --minutes 30"
)
@takes("time", MINUTES, only=("minutes",))
@takes(
    "given",
    "specnav.recipes.vlm:TrainVlmConfig",
    changes={
        "out": {"default": None, "shown": "runs/vlm-pair"},
        "data_dir": {"shown": "runs/train"},
    },
)
def vlm(given: dict[str, Any], time: dict[str, Any]) -> None:
    """Train the robot's vision-language pair on simulated rooms, with an oracle that knows the rooms."""
    from specnav.paths import RUNS
    from specnav.recipes.settings import TrainingSettings
    from specnav.recipes.vlm import TrainVlmConfig, train_vlm

    config = TrainVlmConfig(**{"out": RUNS / "vlm-pair", "data_dir": RUNS / "train", **given})
    train_vlm(config.within(TrainingSettings(**time).minutes))


@train_app.command("text", epilog="Example:  specnav train text --minutes 30 --questions mt_bench.jsonl")
@takes("time", MINUTES, only=("minutes",))
@takes(
    "given",
    "specnav.recipes.text.train:TrainTextConfig",
    changes={
        "out": {"default": None, "shown": "default_models/"},
        "run": {"default": None, "shown": "runs/train-text"},
    },
)
def text(given: dict[str, Any], time: dict[str, Any]) -> None:
    """Train the text pair on Python's standard library; a killed run continues where it stopped."""
    from specnav.paths import MODELS, ROOT, RUNS
    from specnav.recipes.settings import TrainingSettings
    from specnav.recipes.text.train import TextSchedule, TrainTextConfig, train_text

    schedule = TextSchedule.within(TrainingSettings(**time).minutes)
    defaults = {"out": ROOT / MODELS.name, "run": RUNS / "train-text", "schedule": schedule}
    train_text(TrainTextConfig(**{**defaults, **given}))


@train_app.command(
    "exits",
    epilog="Examples:  specnav train exits --target default_models/nav-target --lr 3e-3 --out runs/nav-exits   |   "
    "specnav train exits --target lmsys/vicuna-7b-v1.5 --data sharegpt.json --out runs/vicuna-exits",
)
@takes("given", "specnav.recipes.exits.train:TrainExitsConfig", changes=BESIDE)
def exits(given: dict[str, Any]) -> None:
    """Train early-exit adapters for a target; a killed run continues where it stopped."""
    from specnav.recipes.exits.train import TrainExitsConfig, train_exits

    train_exits(TrainExitsConfig(**_with_a_run(given)))


@train_app.command(
    "draft",
    epilog="Examples:  specnav train draft --target default_models/text-target --draft layers:0,7 --out runs/my-draft"
    "   |   specnav train draft --target default_models/nav-target --draft default_models/nav-draft --bag BAG "
    "--out runs/room-draft",
)
@takes("data", "specnav.recipes.drafts.config:Sources")
@takes("given", "specnav.recipes.drafts.config:TrainDraftConfig", changes=BESIDE)
def draft(given: dict[str, Any], data: dict[str, Any]) -> None:
    """Train a draft model to predict a target; a killed run continues where it stopped."""
    from specnav.recipes.drafts.config import Sources, TrainDraftConfig
    from specnav.recipes.drafts.train import train_draft

    config = TrainDraftConfig(**_with_a_run(given), sources=Sources(**data))
    result = train_draft(config)
    typer.echo(
        f"{result.folder}: τ {result.before.tau:.2f} before, {result.after.tau:.2f} after, at γ = {config.gamma} on "
        f"{result.after.answers} held-out answers"
    )
