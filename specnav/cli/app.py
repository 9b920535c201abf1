"""The `specnav` command: one typer app whose commands parse flags and hand over to the rooms that do the work.

Rooms are imported inside the commands, so that `specnav --help` answers at once. An error that a user can act on
(see `specnav.errors`) ends as one line on stderr and a non-zero exit code, never as a traceback.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from cloud_verifier.config import ServerConfig
from specdec.options import RESUME_TIMEOUT_S
from specnav.cli.bags import add_bag_commands
from specnav.cli.bench import add_bench_commands
from specnav.cli.blackbox import add_blackbox_command
from specnav.cli.doctor import add_doctor_command
from specnav.cli.drill import add_drill_commands
from specnav.cli.fleet import fleet_app
from specnav.cli.from_settings import takes
from specnav.cli.keys import keys_app
from specnav.cli.models import convert_app, plan_app
from specnav.cli.options import (
    SHIPPED_TARGET,
    Bandwidth,
    Compile,
    CompileDraft,
    Device,
    Draft,
    ExitLayers,
    Exits,
    Gamma,
    Gguf,
    Jitter,
    Key,
    Loss,
    MinP,
    Patience,
    Quantize,
    RepetitionPenalty,
    Rtt,
    Seed,
    Target,
    Temperature,
    TopK,
    TopP,
    VerdictLogContents,
    VerdictLogFolder,
)
from specnav.cli.pipeline import add_pipeline_command
from specnav.cli.robot import add_robot_commands
from specnav.cli.serving import add_serving_commands
from specnav.cli.train import train_app
from specnav.errors import UsageError, user_errors

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    help="Speculative edge-cloud control of a robot by a vision-language model.",
    epilog="Start with [bold]specnav doctor[/], then [bold]specnav demo[/].",
)
app.add_typer(train_app, name="train")
app.add_typer(keys_app, name="keys")
app.add_typer(fleet_app, name="fleet")
app.add_typer(plan_app, name="plan")
app.add_typer(convert_app, name="convert")


@app.command(
    epilog="Examples:  specnav demo   |   specnav demo --console   |   "
    "specnav demo --episodes 10 --rtt 40 --headless   |   specnav demo --method ar"
)
def demo(
    episodes: Annotated[int, typer.Option(min=1, max=10_000, help="Instructions to carry out.")] = 3,
    seed: Seed = 0,
    method: Annotated[
        str, typer.Option(help="How answers are decoded: fsd, auto, sd, specedge, picospec or ar.")
    ] = "fsd",
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
        str,
        typer.Option(
            help="frontier_search, damped_search, none (the model alone decides), or auto: what the model was made for."
        ),
    ] = "auto",
    absent_share: Annotated[
        float, typer.Option(min=0, max=1, help="Share of episodes whose target is not in the room.")
    ] = 0.0,
    target_model: Target = None,
    draft_model: Draft = None,
    gguf: Gguf = None,
    max_decisions: Annotated[
        int, typer.Option(min=1, max=1000, help="Give up an episode after this many decisions.")
    ] = 50,
    headless: Annotated[bool, typer.Option("--headless", help="No live view: plain log lines (CI).")] = False,
    latency_study: Annotated[
        bool,
        typer.Option(
            "--latency-study", help="Also compare ar, sd and fsd at round trips of 0, 40 and 120 ms."
        ),
    ] = False,
    console: Annotated[
        bool,
        typer.Option(
            "--console", help="No episodes: a page in the browser where you tell the robot what to do."
        ),
    ] = False,
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="With --console: the page's port (0: a free one).")
    ] = 8765,
    host: Annotated[
        str,
        typer.Option(
            help="With --console: the page's address. Beyond loopback only in a container whose port is published on "
            "this machine alone: whoever reaches it moves the simulated robot."
        ),
    ] = "127.0.0.1",
    connect: Annotated[
        str, typer.Option(metavar="ADDRESS", help="With --console: a verifier that runs elsewhere (start one here).")
    ] = "",
) -> None:
    """Let a simulated robot obey instructions: verifier, simulator and ROS nodes as processes on this machine."""
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
        gguf=gguf or "",
    )
    if console:
        from specnav.demo.console import run_console

        raise typer.Exit(run_console(config, port, host=host, connect=connect))
    if connect:
        raise UsageError("--connect goes with --console: a run with a report compares with a target of its own")
    raise typer.Exit(run_demo(config))


add_bench_commands(app)
add_bag_commands(app)
add_blackbox_command(app)
add_drill_commands(app)
add_pipeline_command(app)
add_robot_commands(app)
add_serving_commands(app)


@app.command(
    epilog="Examples:  specnav serve --bind tcp://0.0.0.0:5555 --keys keys --model Qwen/Qwen2-VL-7B-Instruct "
    "--quantize 4bit   |   specnav serve --bind tcp://0.0.0.0:5555 --insecure"
)
@takes("given", ServerConfig, changes=SHIPPED_TARGET)
def serve(
    given: Mapping[str, Any],
    config: Annotated[
        Path | None, typer.Option(help="YAML file (default: config/cloud.yaml). Flags override it.")
    ] = None,
) -> None:
    """Run the cloud verifier: it holds the target model and answers drafts with verdicts until SIGINT or SIGTERM."""
    from specnav.serve import run_serve

    raise typer.Exit(run_serve(config, given))


@app.command(
    epilog='Examples:  specnav generate "find the silver bottle" --image frame.jpg   |   '
    'specnav generate "find the silver bottle" --connect tcp://CLOUD:5555 --key robot-1.key'
)
def generate(
    text: Annotated[str, typer.Argument(help="The prompt (or the instruction).")],
    image: Annotated[
        list[Path] | None, typer.Option(help="JPEG or PNG file; may be given several times.")
    ] = None,
    method: Annotated[str, typer.Option(help="fsd, auto, sd, ar, … (specnav bench lists them).")] = "fsd",
    connect: Annotated[
        str | None,
        typer.Option(help="A verifier, tcp://HOST:PORT, or fleet://HOST:PORT (default: start one here)."),
    ] = None,
    key: Key = None,
    patience: Patience = RESUME_TIMEOUT_S,
    target_model: Target = None,
    draft_model: Draft = None,
    gguf: Gguf = None,
    exits: Exits = None,
    exit_layers: ExitLayers = None,
    quantize: Quantize = "none",
    pixels: Annotated[
        int,
        typer.Option(
            min=0,
            max=64_000_000,
            help="Of a picture as the models see it; larger ones are scaled down (0: about a megapixel).",
        ),
    ] = 0,
    compile: Compile = False,
    compile_draft: CompileDraft = False,
    device: Device = "auto",
    gamma: Gamma = 4,
    temperature: Temperature = 0.0,
    top_k: TopK = None,
    top_p: TopP = None,
    min_p: MinP = None,
    repetition_penalty: RepetitionPenalty = None,
    logit_bias: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ID=VALUE", help="Add VALUE to the logit of a token id; may be given several times."
        ),
    ] = None,
    seed: Seed = 0,
    max_new_tokens: Annotated[int, typer.Option(min=1, max=1_000_000, help="Longest answer, tokens.")] = 64,
    min_new_tokens: Annotated[int, typer.Option(min=0, max=1_000_000, help="Shortest answer, tokens.")] = 0,
    stop: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TEXT", help="End the answer once it contains this text; may be given several times."
        ),
    ] = None,
    grammar: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="The answer follows this grammar: a .lark, .gbnf, .regex or .json (schema) file.",
        ),
    ] = None,
    verdict_log: VerdictLogFolder = None,
    verdict_log_contents: VerdictLogContents = None,
    stats: Annotated[bool, typer.Option("--stats", help="Print on stderr how it was decoded.")] = False,
) -> None:
    """Generate one answer, streamed to stdout as it is verified."""
    from specnav.generate import GenerateConfig, run_generate

    config = GenerateConfig(
        text=text,
        images=tuple(image or ()),
        method=method,
        connect=connect,
        key=key,
        patience_s=patience,
        target_model=target_model,
        draft_model=draft_model,
        gguf=gguf or "",
        exits=exits or "",
        exit_layers=exit_layers or "auto",
        quantize=quantize,
        pixels=pixels,
        compile=compile,
        compile_draft=compile_draft,
        verdict_log=verdict_log or "",
        verdict_log_contents=verdict_log_contents or "tokens",
        device=device,
        gamma=gamma,
        temperature=temperature,
        top_k=top_k or 0,
        top_p=1.0 if top_p is None else top_p,
        min_p=min_p or 0.0,
        repetition_penalty=1.0 if repetition_penalty is None else repetition_penalty,
        logit_bias=tuple(logit_bias or ()),
        seed=seed,
        max_new_tokens=max_new_tokens,
        min_new_tokens=min_new_tokens,
        stop=tuple(stop or ()),
        grammar=grammar,
        stats=stats,
    )
    raise typer.Exit(run_generate(config))


@app.command(epilog="Example:  specnav cost --target-price 0.9,0.9 --draft-price 0.1,0.1 --tau 3.2")
def cost(
    target_price: Annotated[
        str | None,
        typer.Option(help="IN,OUT dollars per million tokens (default: the early-exit paper's pairs)."),
    ] = None,
    draft_price: Annotated[
        str | None, typer.Option(help="IN,OUT of a draft model that runs in the cloud.")
    ] = None,
    requests: Annotated[int, typer.Option(min=1, help="Requests to pay for.")] = 1_000_000,
    tokens_in: Annotated[int, typer.Option(min=0, help="Prompt tokens per request.")] = 100,
    tokens_out: Annotated[int, typer.Option(min=1, help="Answer tokens per request.")] = 500,
    gamma: Gamma = 4,
    tau: Annotated[float, typer.Option(min=1, help="Tokens gained per round.")] = 2.5,
) -> None:
    """Compare API bills: the cloud alone, a draft model in the cloud, a draft model on the edge."""
    from specnav.bench.costs import Workload
    from specnav.cost import run_cost

    work = Workload(requests, tokens_in, tokens_out, gamma, tau)
    raise typer.Exit(run_cost(target_price, draft_price, work))


add_doctor_command(app)


def main() -> None:
    """Entry point of the console script."""
    with user_errors():
        try:
            # Not the parser's own way of ending: its complaints are framed and several lines long.
            code = app(standalone_mode=False)
        except typer.Abort:
            raise KeyboardInterrupt from None
        sys.exit(code)


if __name__ == "__main__":
    main()
