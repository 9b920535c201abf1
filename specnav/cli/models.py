"""`specnav plan` and `specnav convert`: models before they are loaded, what they need and in which format they are."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

plan_app = typer.Typer(no_args_is_help=True, help="What a pair of models needs, before anything is loaded.")
convert_app = typer.Typer(no_args_is_help=True, help="A model in another engine's format.")


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


@convert_app.callback()
def convert() -> None:
    """A model in another engine's format."""


@convert_app.command(
    epilog="Examples:  specnav convert gguf default_models/nav-draft   |   "
    "specnav convert gguf models/Qwen2-VL-2B-Instruct --type q4_0 --out models/qwen2-vl-2b-q4_0.gguf"
)
def gguf(
    folder: Annotated[Path, typer.Argument(help="Hugging Face folder with its safetensors.")],
    kind: Annotated[
        str,
        typer.Option(
            "--type", metavar="TYPE", help="f32, f16, bf16, q8_0, q5_1, q5_0, q4_1 or q4_0: of most numbers."
        ),
    ] = "q8_0",
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Default: NAME-TYPE.gguf in the folder itself.")
    ] = None,
) -> None:
    """Make a GGUF file of a folder, for drafting on llama.cpp; every number is read back and compared.

    Of a model that takes pictures, the vision tower goes into a file of its own beside it, mmproj-….gguf. A file that
    is not sound never gets its name.
    """
    from specnav.convert.run import ConvertConfig, run_convert

    raise typer.Exit(run_convert(ConvertConfig(folder, kind, out)))
