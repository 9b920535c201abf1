"""`specnav api`, an HTTP server at the edge, and `specnav top`, a running verifier second by second."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from specdec.options import RESUME_TIMEOUT_S
from specnav.cli.options import METRICS, Device, Gguf, Key, Patience, Quantize
from specnav.errors import UsageError


def add_serving_commands(app: typer.Typer) -> None:
    """Give the app the commands of this module."""
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


def top(
    address: Annotated[
        str, typer.Argument(metavar="[HOST:PORT]", help="Where the verifier's --metrics listens.")
    ] = METRICS,
    interval: Annotated[
        float, typer.Option(min=0.1, max=3600, metavar="S", help="Time between two looks, s.")
    ] = 1.0,
    once: Annotated[
        bool, typer.Option("--once", help="One snapshot, its rates over one interval, and end.")
    ] = False,
) -> None:
    """Watch a verifier: throughput, batch, times, acceptance, memory, refusals, and a row for each client.

    Ctrl-C ends it. A verifier that goes away is waited for.
    """
    from specnav.top.run import TopConfig, run_top

    raise typer.Exit(run_top(TopConfig(address, interval, once)))


def api(
    connect: Annotated[
        str | None,
        typer.Option(help="A verifier, tcp://HOST:PORT, or fleet://HOST:PORT; it holds the model that answers."),
    ] = None,
    key: Key = None,
    draft_model: Annotated[
        str | None,
        typer.Option(
            "--draft-model",
            help="Draft: a Hugging Face folder or hub id, or a GGUF file. Default: the shipped one for text.",
        ),
    ] = None,
    gguf: Gguf = None,
    quantize: Quantize = "none",
    pixels: Annotated[
        int, typer.Option(min=0, max=64_000_000, help="Of a picture as the draft model sees it (0: about a megapixel).")
    ] = 0,
    device: Device = "auto",
    method: Annotated[
        str, typer.Option(help="How answers are decoded: auto, fsd, sd, ar, … (specnav bench lists them).")
    ] = "auto",
    gamma: Annotated[int, typer.Option(min=1, max=32, help="Draft tokens per round.")] = 4,
    bind: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="Where to listen; port 0 takes a free one.")
    ] = "127.0.0.1:8000",
    api_keys: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Names and hashes of API keys. Without, only this machine is served."),
    ] = None,
    new_key: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Make an API key, print it once, put its hash into --api-keys, and end."),
    ] = None,
    name: Annotated[str, typer.Option(help="What the model is called here. Default: as the verifier calls it.")] = "",
    answers: Annotated[int, typer.Option(min=1, max=512, help="Answers at a time.")] = 16,
    queue: Annotated[int, typer.Option(min=0, max=100_000, help="Requests that may wait; more get 429.")] = 64,
    max_tokens: Annotated[
        int, typer.Option(min=1, max=1_000_000, help="Of a chat answer whose request does not say.")
    ] = 1024,
    patience: Patience = RESUME_TIMEOUT_S,
    drain: Annotated[
        float, typer.Option(min=1, max=3600, help="After SIGTERM, answers in flight may take so long, s.")
    ] = 10.0,
    max_body_mb: Annotated[float, typer.Option(min=0.001, max=1024, help="Longest request, MB.")] = 32.0,
    metrics: Annotated[bool, typer.Option("--metrics", help="Serve /metrics, for Prometheus.")] = False,
    log_contents: Annotated[
        bool, typer.Option("--log-contents", help="Let the log quote answers, to find an error.")
    ] = False,
) -> None:
    """Serve an OpenAI-compatible HTTP API at the edge: drafts are made here, every token is decided by the verifier.

    Needs the packages of the extra `api`. Ends with SIGINT or SIGTERM.
    """
    from specnav.api.run import make_key, run_api

    if new_key is not None:
        raise typer.Exit(make_key(api_keys, new_key))
    if connect is None:
        raise UsageError("name the verifier that decides: --connect tcp://HOST:PORT (specnav serve starts one)")
    from specnav.api.config import ApiConfig

    config = ApiConfig(
        connect=connect,
        key=key,
        draft_model=draft_model,
        gguf=gguf or "",
        quantize=quantize,
        pixels=pixels,
        device=device,
        method=method,
        gamma=gamma,
        bind=bind,
        api_keys=api_keys,
        name=name,
        answers=answers,
        queue=queue,
        max_tokens=max_tokens,
        patience_s=patience,
        drain_s=drain,
        max_body_mb=max_body_mb,
        metrics=metrics,
        log_contents=log_contents,
    )
    raise typer.Exit(run_api(config))
