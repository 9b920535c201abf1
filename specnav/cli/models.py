"""`specnav plan` and `specnav convert`: models before they are loaded, what they need and in which format they are."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from specnav.bench.settings import PACING
from specnav.cli.from_settings import takes

plan_app = typer.Typer(no_args_is_help=True, help="What models and fleets need, before anything is loaded.")
convert_app = typer.Typer(no_args_is_help=True, help="A model in another engine's format.")


def pacing(text: str) -> float:
    """A time of a forward, for typer."""
    from specdec.errors import OptionsError
    from specdec.row_ms import read_ms

    try:
        return read_ms(text)
    except OptionsError as error:
        raise typer.BadParameter(str(error)) from error


@plan_app.callback()
def plan() -> None:
    """What models and fleets need, before anything is loaded."""


@plan_app.command(
    epilog="Examples:  specnav plan memory --target Qwen/Qwen2-VL-7B-Instruct --draft Qwen/Qwen2-VL-2B-Instruct "
    "--clients 8   |   specnav plan memory --target Qwen/Qwen2-VL-7B-Instruct --quantize 4bit --gb 16 --clients 20"
)
@takes("given", "specnav.plan.run:PlanConfig")
def memory(given: dict[str, Any]) -> None:
    """Memory of edge and cloud, from the models' configurations alone."""
    from specnav.plan.run import PlanConfig, run_plan_memory

    raise typer.Exit(run_plan_memory(PlanConfig(**given)))


@plan_app.command(
    epilog="Examples:  specnav plan fleet --robots 1000 --rate 0.2 --gpu a100 --link wifi6   |   specnav plan fleet "
    "--gpu specedge-32b --link lte --p95-ms 6000 --methods ar,specedge --gpus 40   |   specnav plan fleet --measured "
    "runs/batch --draft-ms 8   |   specnav plan fleet --against runs/clients-20260101-120000/clients.json"
)
def fleet(
    robots: Annotated[int, typer.Option(help="Robots in all.")] = 1000,
    rate: Annotated[float, typer.Option(help="Decisions a second of a robot.")] = 0.2,
    arrivals: Annotated[
        str, typer.Option(help="periodic, poisson, or after (a pause after the last one).")
    ] = "periodic",
    gpus: Annotated[int, typer.Option(help="GPUs that are there; 0: as many as the best method needs.")] = 0,
    gpu: Annotated[
        str | None,
        typer.Option(
            help="What forwards take: a100 (paper 000, Table 9) or an operating point of config/points."
        ),
    ] = None,
    measured: Annotated[
        Path | None,
        typer.Option(
            metavar="PATH", help="The same, measured: a batch.json, a study of clients or a clients.json."
        ),
    ] = None,
    link: Annotated[
        str, typer.Option(help="wifi6, 5g, lte or a round trip in ms; a mixture: wifi6=70,lte=30.")
    ] = "wifi6",
    rtt: Annotated[float | None, typer.Option(help="Round trip of the link, ms.")] = None,
    jitter: Annotated[float | None, typer.Option(help="Its jitter, ms.")] = None,
    bandwidth: Annotated[
        float | None, typer.Option(help="Its bandwidth each way, Mb/s (0: no limit).")
    ] = None,
    loss: Annotated[float | None, typer.Option(help="Share of packets that TCP must resend.")] = None,
    methods: Annotated[
        str | None,
        typer.Option(help="Comma-separated, of ar, cloud-sd, sd, fsd, specedge, auto. Default: all."),
    ] = None,
    p95_ms: Annotated[
        float | None,
        typer.Option("--p95-ms", help="Promise: 95 % of the decisions within so many ms (2000)."),
    ] = None,
    p95_token_ms: Annotated[
        float | None, typer.Option("--p95-token-ms", help="Instead: the same of a token of an answer, ms.")
    ] = None,
    prompt_tokens: Annotated[int, typer.Option(help="Tokens of a prompt, its picture's included.")] = 400,
    answer_tokens: Annotated[int, typer.Option(help="Tokens of an answer.")] = 40,
    picture_kb: Annotated[float, typer.Option(min=0, max=1e5, help="Size of a picture, kB.")] = 30.0,
    picture_ms: Annotated[
        float,
        typer.Option(min=0, max=60_000, help="Preparing a picture in the cloud, beside its forwards, ms."),
    ] = 0.0,
    kept: Annotated[
        float,
        typer.Option(
            min=0,
            max=0.99,
            help="Share of a prompt that need not be computed where the robot was before; the "
            "directory then sends it there.",
        ),
    ] = 0.0,
    draft_ms: Annotated[
        float | None,
        typer.Option(parser=pacing, metavar=PACING, help="A draft forward on the edge, ms; by rows, too."),
    ] = None,
    cloud_draft_ms: Annotated[
        float | None, typer.Option(parser=pacing, metavar=PACING, help="The same in the cloud, for cloud-sd.")
    ] = None,
    gamma: Annotated[int | None, typer.Option(min=1, max=32, help="Draft tokens of a chain.")] = None,
    alpha: Annotated[
        float | None, typer.Option(help="Chance that a token of a chain is accepted, 0 to 1.")
    ] = None,
    tree_alpha: Annotated[float | None, typer.Option(help="The same of a level of specedge's tree.")] = None,
    miss: Annotated[
        float | None, typer.Option(help="Share of verdicts that fsd has no draft ready for.")
    ] = None,
    forward_rows: Annotated[int, typer.Option(min=1, max=100_000, help="Rows of a forward, at most.")] = 256,
    prompt_rows: Annotated[
        int, typer.Option(min=1, max=100_000, help="Of prompts, beside other sessions.")
    ] = 64,
    kv_gb: Annotated[
        float, typer.Option(min=0, max=1e6, help="GPU memory for caches, GB (0: no bound).")
    ] = 0.0,
    kv_kb: Annotated[
        float, typer.Option(min=0.01, max=1e5, help="Cache of a token, kB (Qwen2-VL-7B).")
    ] = 56.0,
    gpu_price: Annotated[
        float | None, typer.Option(min=0, help="Dollars an hour of a GPU (SpecEdge's A100).")
    ] = None,
    edge_price: Annotated[
        float, typer.Option(min=0, help="Of an edge that drafts (SpecEdge's RTX 4090: 0.35).")
    ] = 0.0,
    rtts: Annotated[
        str | None,
        typer.Option(metavar="PACING,PACING,...", help="Round trips to compare one GPU at, or none."),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, max=2**31, help="Seed of everything random.")] = 0,
    against: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Nothing of the above: simulate a run of bench clients and compare."
        ),
    ] = None,
    overhead_ms: Annotated[
        float, typer.Option(min=0, max=10_000, help="Of a round on the edge beside drafting, ms.")
    ] = 1.0,
    out: Annotated[Path | None, typer.Option(help="Folder of the plan (default: runs/fleet-<time>).")] = None,
    json: Annotated[bool, typer.Option("--json", help="The plan as JSON instead of tables.")] = False,
) -> None:
    """Simulate a fleet: GPUs that robots need, by method, with a promised p95. Nothing is measured, no model loaded."""
    from specnav.errors import UsageError
    from specnav.plan.fleet import FleetConfig, run_against, run_plan_fleet, with_flags

    if against is not None:
        raise typer.Exit(run_against(against, seed, overhead_ms, json))
    if p95_ms is not None and p95_token_ms is not None:
        raise UsageError("--p95-ms promises a decision, --p95-token-ms a token; give one of them")
    promised = p95_token_ms if p95_token_ms is not None else p95_ms
    config = FleetConfig(
        robots=robots, rate=rate, arrivals=arrivals, gpus=gpus, gpu=gpu, measured=measured, link=link, rtt_ms=rtt,
        jitter_ms=jitter, bandwidth_mbps=bandwidth, loss=loss, p95_ms=2000.0 if promised is None else promised,
        token=p95_token_ms is not None, prompt_tokens=prompt_tokens, answer_tokens=answer_tokens, picture_kb=picture_kb,
        picture_ms=picture_ms, kept=kept, draft_ms=draft_ms, cloud_draft_ms=cloud_draft_ms, gamma=gamma, alpha=alpha,
        tree_alpha=tree_alpha, miss=miss, forward_rows=forward_rows, prompt_rows=prompt_rows, kv_gb=kv_gb, kv_kb=kv_kb,
        overhead_ms=overhead_ms, gpu_price=gpu_price, edge_price=edge_price, seed=seed, out=out, json=json,
    )  # fmt: skip
    raise typer.Exit(run_plan_fleet(with_flags(config, methods, rtts)))


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
