"""`specnav plan`: what a pair needs, worked out before anything is bought or loaded."""

from __future__ import annotations

from typing import Annotated

import typer

plan_app = typer.Typer(no_args_is_help=True, help="What a pair of models needs, before anything is loaded.")


@plan_app.callback()
def plan() -> None:
    """What a pair of models needs, before anything is loaded."""


@plan_app.command(
    epilog="Examples:  specnav plan memory --target Qwen/Qwen2-VL-7B-Instruct --draft Qwen/Qwen2-VL-2B-Instruct "
    "--clients 8   |   specnav plan memory --target Qwen/Qwen2-VL-7B-Instruct --quantize 4bit --gb 16 --clients 20"
)
def memory(
    target: Annotated[str, typer.Option(help="Folder, hub id, or a published name; only its config is read.")],
    draft: Annotated[str | None, typer.Option(help="The same for the edge.")] = None,
    context: Annotated[int, typer.Option(min=1, max=10_000_000, help="Tokens of a session, prompt and answer.")] = 4096,
    clients: Annotated[int, typer.Option(min=1, max=100_000, help="Sessions at a time in the cloud.")] = 1,
    dtype: Annotated[str, typer.Option(help="float32, float16 or bfloat16.")] = "bfloat16",
    quantize: Annotated[str, typer.Option(help="The target: none, 8bit or 4bit.")] = "none",
    draft_quantize: Annotated[str, typer.Option(help="The draft: none, 8bit or 4bit.")] = "none",
    device: Annotated[str, typer.Option(help="cuda or cpu.")] = "cuda",
    gb: Annotated[float, typer.Option(min=0, help="GiB that the cloud has: does it fit? Exit code 1 if not.")] = 0.0,
    json: Annotated[bool, typer.Option("--json", help="Bytes, for scripts.")] = False,
) -> None:
    """Memory of edge and cloud, from the models' configurations alone."""
    from harness.errors import UsageError
    from specnav.plan.run import PlanConfig, run_plan_memory

    if device not in ("cuda", "cpu"):
        raise UsageError(f"device {device!r} is unknown here: choose cuda or cpu")
    config = PlanConfig(
        target, draft, context, clients, dtype, quantize, draft_quantize, device, gb, json
    )  # fmt: skip
    raise typer.Exit(run_plan_memory(config))
