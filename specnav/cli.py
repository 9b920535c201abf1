"""The `specnav` command: one typer app whose commands parse flags and hand over to the rooms that do the work.

Rooms are imported inside the commands, so that `specnav --help` answers at once. An error that a user can act on
(see `specnav.errors`) ends as one line on stderr and a non-zero exit code, never as a traceback.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from specnav.cli_train import Seed, train_app
from specnav.errors import user_errors

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    help="Speculative edge-cloud control of a robot by a vision-language model.",
    epilog="Start with [bold]specnav doctor[/], then [bold]specnav demo[/].",
)
app.add_typer(train_app, name="train")

Target = Annotated[
    str | None,
    typer.Option("--target-model", help="Target: a Hugging Face folder or hub id. Default: the shipped one."),
]
Draft = Annotated[
    str | None,
    typer.Option("--draft-model", help="Draft: a Hugging Face folder or hub id. Default: the shipped one."),
]
Quantize = Annotated[str, typer.Option(help="none, 8bit or 4bit (bitsandbytes).")]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:0 …")]
Rtt = Annotated[
    float, typer.Option("--rtt", min=0, max=60_000, help="Emulated round-trip time of the link, ms.")
]
Jitter = Annotated[float, typer.Option(min=0, max=60_000, help="Emulated jitter, ms.")]
Bandwidth = Annotated[float, typer.Option(min=0, help="Emulated bandwidth each way, Mb/s (0: no limit).")]
Loss = Annotated[float, typer.Option(min=0, max=0.9, help="Emulated share of messages that TCP must resend.")]
Gamma = Annotated[int, typer.Option(min=1, max=32, help="Draft tokens a round.")]
Temperature = Annotated[
    float,
    typer.Option(min=0, max=10, help="0 is greedy; above, the target's exact distribution by shared noise."),
]


@app.command(
    epilog="Examples:  specnav demo   |   specnav demo --episodes 10 --rtt 40 --headless   |   specnav demo --method ar"
)
def demo(
    episodes: Annotated[int, typer.Option(min=1, max=10_000, help="Instructions to carry out.")] = 3,
    seed: Seed = 0,
    method: Annotated[str, typer.Option(help="How answers are decoded: ar or sd.")] = "sd",
    out: Annotated[
        Path | None, typer.Option(help="Folder of the report (default: runs/demo-<time>).")
    ] = None,
    gamma: Gamma = 4,
    temperature: Temperature = 0.0,
    rtt: Rtt = 0.0,
    jitter: Jitter = 0.0,
    bandwidth: Bandwidth = 0.0,
    loss: Loss = 0.0,
    exploration: Annotated[
        str, typer.Option(help="damped_search, or none: the model alone decides.")
    ] = "damped_search",
    absent_share: Annotated[
        float, typer.Option(min=0, max=1, help="Share of episodes whose target is not in the room.")
    ] = 0.0,
    target_model: Target = None,
    draft_model: Draft = None,
    max_decisions: Annotated[
        int, typer.Option(min=1, max=1000, help="Give up an episode after so many decisions.")
    ] = 50,
    headless: Annotated[bool, typer.Option("--headless", help="No live view: plain log lines (CI).")] = False,
    latency_study: Annotated[
        bool, typer.Option("--latency-study", help="Also compare ar and sd at RTT 0, 40 and 120 ms.")
    ] = False,
) -> None:
    """A simulated robot obeys instructions: verifier, simulator and ROS nodes as processes on this machine."""
    from specnav.demo.run import DemoConfig, run_demo

    config = DemoConfig(
        episodes=episodes,
        seed=seed,
        method=method,
        out=out,
        gamma=gamma,
        temperature=temperature,
        rtt_ms=rtt,
        jitter_ms=jitter,
        bandwidth_mbps=bandwidth,
        loss=loss,
        exploration=exploration,
        absent_share=absent_share,
        max_decisions=max_decisions,
        headless=headless or not sys.stdout.isatty(),
        latency_study=latency_study,
        target_model=target_model or DemoConfig.target_model,
        draft_model=draft_model or DemoConfig.draft_model,
    )
    raise typer.Exit(run_demo(config))


@app.command(
    epilog="Examples:  specnav bench   |   specnav bench --questions mt_bench.jsonl --methods ar,sd --rtt 40   |   "
    "specnav bench --point go2-wifi6"
)
def bench(
    more_questions: Annotated[
        list[str] | None, typer.Argument(metavar="FILE", help="Question files, as with --questions.")
    ] = None,
    questions: Annotated[
        list[str] | None,
        typer.Option(
            help="A .jsonl file (question_id, category, turns), a text file (a question a line) or hf:ORG/NAME; "
            "may be given several times. Default: a few questions of our own."
        ),
    ] = None,
    methods: Annotated[
        str | None,
        typer.Option(
            help="Comma-separated; axes may be overridden, like sd+tree:32x6. Oracles: hf-generate, hf-assisted. "
            "Default: every method."
        ),
    ] = None,
    point: Annotated[
        str | None,
        typer.Option(help="Operating point of a paper, see config/points. Other flags win over it."),
    ] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="At most so many questions.")] = None,
    max_new_tokens: Annotated[int | None, typer.Option(min=1, max=1_000_000, help="Default 64.")] = None,
    gamma: Annotated[int | None, typer.Option(min=1, max=32, help="Draft tokens a round (4).")] = None,
    temperature: Annotated[float | None, typer.Option(min=0, max=10, help="0 is greedy.")] = None,
    top_k: Annotated[int | None, typer.Option(min=0, help="0: off.")] = None,
    top_p: Annotated[float | None, typer.Option(min=0, max=1, help="1: off.")] = None,
    seed: Annotated[int | None, typer.Option(min=0, max=2**63 - 1, help="Seed of everything random.")] = None,
    rtt: Annotated[float | None, typer.Option(min=0, max=60_000, help="Emulated round trip, ms.")] = None,
    jitter: Annotated[float | None, typer.Option(min=0, max=60_000, help="Emulated jitter, ms.")] = None,
    bandwidth: Annotated[
        float | None, typer.Option(min=0, help="Emulated bandwidth each way, Mb/s (0: no limit).")
    ] = None,
    loss: Annotated[float | None, typer.Option(min=0, max=0.9, help="Share of messages sent again.")] = None,
    draft_ms: Annotated[
        float | None,
        typer.Option(min=0, max=60_000, help="Pacing: minimum time of a draft forward, ms (0: off)."),
    ] = None,
    verify_ms: Annotated[
        float | None,
        typer.Option(min=0, max=60_000, help="Pacing: minimum time of a target forward, ms (0: off)."),
    ] = None,
    cloud_draft_ms: Annotated[
        float | None,
        typer.Option(
            min=0, max=60_000, help="Pacing of a draft model in the cloud, ms (default: as --draft-ms)."
        ),
    ] = None,
    target_model: Target = None,
    draft_model: Draft = None,
    quantize: Quantize = "none",
    device: Device = "auto",
    out: Annotated[Path | None, typer.Option(help="Folder of the run (default: runs/bench-<time>).")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in --out.")] = False,
) -> None:
    """Methods side by side on text questions: edge and cloud as two processes over an emulated link."""
    from specnav.bench.config import make_config
    from specnav.bench.run import run_bench

    flags = {
        "questions": (*(questions or ()), *(more_questions or ())) or None,
        "methods": None if methods is None else tuple(name.strip() for name in methods.split(",")),
        "point": point,
        "limit": limit,
        "max_new_tokens": max_new_tokens,
        "gamma": gamma,
        "temperature": temperature,
        "top_k": top_k,
        "top_p": top_p,
        "seed": seed,
        "rtt_ms": rtt,
        "jitter_ms": jitter,
        "bandwidth_mbps": bandwidth,
        "loss": loss,
        "draft_ms": draft_ms,
        "verify_ms": verify_ms,
        "cloud_draft_ms": cloud_draft_ms,
        "target_model": target_model,
        "draft_model": draft_model,
        "quantize": quantize,
        "device": device,
        "out": out,
        "resume": resume,
    }
    raise typer.Exit(run_bench(make_config(flags)))


@app.command(
    epilog="Example:  specnav serve --bind tcp://0.0.0.0:5555 --model Qwen/Qwen2-VL-7B-Instruct --quantize 4bit"
)
def serve(
    config: Annotated[
        Path | None, typer.Option(help="YAML file (default: config/cloud.yaml). Flags win over it.")
    ] = None,
    bind: Annotated[str | None, typer.Option(help="tcp://HOST:PORT; port 0 takes a free one.")] = None,
    model: Annotated[str | None, typer.Option(help="Hugging Face folder or hub id of the target.")] = None,
    quantize: Annotated[str | None, typer.Option(help="none, 8bit or 4bit (bitsandbytes).")] = None,
    device: Annotated[str | None, typer.Option(help="auto, cpu, cuda, cuda:0 …")] = None,
    dtype: Annotated[str | None, typer.Option(help="auto, float32, float16 or bfloat16.")] = None,
) -> None:
    """The cloud verifier: holds the target model, answers drafts with verdicts until SIGINT or SIGTERM."""
    from specnav.serve import run_serve

    flags = {"bind": bind, "model": model, "quantize": quantize, "device": device, "dtype": dtype}
    raise typer.Exit(run_serve(config, {name: value for name, value in flags.items() if value is not None}))


@app.command(
    epilog='Example:  specnav generate "find the silver bottle" --image frame.jpg --connect tcp://127.0.0.1:5555'
)
def generate(
    text: Annotated[str, typer.Argument(help="The prompt (or the instruction).")],
    image: Annotated[
        list[Path] | None, typer.Option(help="JPEG or PNG file; may be given several times.")
    ] = None,
    method: Annotated[str, typer.Option(help="ar or sd.")] = "sd",
    connect: Annotated[
        str | None,
        typer.Option(help="A running verifier, tcp://HOST:PORT (default: start one here for this answer)."),
    ] = None,
    target_model: Target = None,
    draft_model: Draft = None,
    quantize: Quantize = "none",
    device: Device = "auto",
    gamma: Gamma = 4,
    temperature: Temperature = 0.0,
    seed: Seed = 0,
    max_new_tokens: Annotated[int, typer.Option(min=1, max=1_000_000)] = 64,
    stats: Annotated[bool, typer.Option("--stats", help="Say on stderr how it was decoded.")] = False,
) -> None:
    """One answer, streamed to stdout as it is verified."""
    from specnav.generate import GenerateConfig, run_generate

    config = GenerateConfig(
        text=text,
        images=tuple(image or ()),
        method=method,
        connect=connect,
        target_model=target_model,
        draft_model=draft_model,
        quantize=quantize,
        device=device,
        gamma=gamma,
        temperature=temperature,
        seed=seed,
        max_new_tokens=max_new_tokens,
        stats=stats,
    )
    raise typer.Exit(run_generate(config))


@app.command(epilog="Example:  specnav cost --target-price 0.9,0.9 --draft-price 0.1,0.1 --tau 3.2")
def cost(
    target_price: Annotated[
        str | None,
        typer.Option(help="IN,OUT dollars per million tokens (default: the early-exit paper's pairs)."),
    ] = None,
    draft_price: Annotated[str | None, typer.Option(help="IN,OUT of a draft run in the cloud.")] = None,
    requests: Annotated[int, typer.Option(min=1)] = 1_000_000,
    tokens_in: Annotated[int, typer.Option(min=0)] = 100,
    tokens_out: Annotated[int, typer.Option(min=1)] = 500,
    gamma: Gamma = 4,
    tau: Annotated[float, typer.Option(min=1, help="Tokens gained a round.")] = 2.5,
) -> None:
    """What an API bill would be: the cloud alone, a draft in the cloud, a draft on the edge."""
    from evaluation.costs import Workload
    from specnav.cost import run_cost

    work = Workload(requests, tokens_in, tokens_out, gamma, tau)
    raise typer.Exit(run_cost(target_price, draft_price, work))


@app.command()
def doctor(as_json: Annotated[bool, typer.Option("--json", help="Machine-readable output.")] = False) -> None:
    """What can this machine run, what is missing, and how to get it."""
    from specnav.doctor import run_doctor

    raise typer.Exit(run_doctor(as_json))


def main() -> None:
    """Entry point of the console script."""
    with user_errors():
        app()


if __name__ == "__main__":
    main()
