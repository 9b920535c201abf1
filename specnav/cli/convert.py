"""`specnav convert …`: models in the formats of other engines."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

convert_app = typer.Typer(no_args_is_help=True, help="A model in another engine's format.")


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
