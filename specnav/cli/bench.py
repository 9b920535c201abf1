"""`specnav bench` and `specnav payloads`: the commands that compare methods."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from specnav.cli.options import (
    Compile,
    CompileDraft,
    Deterministic,
    Device,
    Draft,
    ExitLayers,
    Exits,
    Gamma,
    Gguf,
    MinP,
    Quantize,
    RepetitionPenalty,
    Seed,
    Target,
    TopK,
    TopP,
)

MS = "MS[:ROWS,...]"


def pacing(text: str) -> float:
    """A time of a forward, for typer."""
    from specdec.errors import OptionsError
    from specdec.row_ms import read_ms

    try:
        return read_ms(text)
    except OptionsError as error:
        raise typer.BadParameter(str(error)) from error


def add_bench_commands(app: typer.Typer) -> None:
    """Give the app the commands of this module."""
    app.command(
        epilog="Examples:  specnav bench   |   specnav bench --questions mt_bench.jsonl --methods ar,sd --rtt 40   |   "
        "specnav bench --point go2-wifi6   |   specnav bench --point all --at-paper-acceptance --out runs/points   |   "
        "specnav bench --acceptance tau:2.92@5 --draft-ms 20 --verify-ms 100   |   "
        "specnav bench --study gamma,link   |   specnav bench --clients 1,8,16 --methods sd --verify-ms 40"
    )(bench)
    app.command(epilog="Example:  specnav payloads --vocab 150000 --top-p 0.9")(payloads)


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
    length: Annotated[
        str | None,
        typer.Option(
            help="Draft length of every drafting method: fixed, latency, pipeline or online (fsd also: marginal; "
            "chains also: worth, token:R2, sequence:R1, sequence:moving, dual:R1/R2)."
        ),
    ] = None,
    payload: Annotated[
        str | None, typer.Option(help="What every drafting method sends up: ids, scalars or rows.")
    ] = None,
    resample: Annotated[
        str | None,
        typer.Option(
            help="How every drafting method recovers from a rejection: noise, cloud, row, samples:M, sparse:K or "
            "truncated:K (lossy)."
        ),
    ] = None,
    point: Annotated[
        str | None,
        typer.Option(
            help="Operating point of a paper, see config/points. Several, separated by commas, or all of them get a "
            "folder each and an index page. Other flags override it."
        ),
    ] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="At most this many questions.")] = None,
    max_new_tokens: Annotated[
        int | None, typer.Option(min=1, max=1_000_000, help="Longest answer, tokens (64).")
    ] = None,
    gamma: Annotated[int | None, typer.Option(min=1, max=32, help="Draft tokens per round (4).")] = None,
    temperature: Annotated[float | None, typer.Option(min=0, max=10, help="0 is greedy.")] = None,
    top_k: TopK = None,
    top_p: TopP = None,
    min_p: MinP = None,
    repetition_penalty: RepetitionPenalty = None,
    seed: Annotated[int | None, typer.Option(min=0, max=2**63 - 1, help="Seed of everything random.")] = None,
    rtt: Annotated[
        float | None, typer.Option(min=0, max=60_000, help="Emulated round-trip time of the link, ms.")
    ] = None,
    jitter: Annotated[float | None, typer.Option(min=0, max=60_000, help="Emulated jitter, ms.")] = None,
    bandwidth: Annotated[
        float | None, typer.Option(min=0, help="Emulated bandwidth each way, Mb/s (0: no limit).")
    ] = None,
    loss: Annotated[
        float | None, typer.Option(min=0, max=0.9, help="Emulated share of messages that TCP must resend.")
    ] = None,
    outage: Annotated[
        list[str] | None,
        typer.Option(
            metavar="START:DURATION",
            help="Cut the link for DURATION seconds, START seconds after it came up; may be given several times.",
        ),
    ] = None,
    draft_ms: Annotated[
        float | None,
        typer.Option(
            parser=pacing, metavar=MS, help="Pacing: minimum time of a draft forward, ms (0: off); by rows: 72:1,90:4."
        ),
    ] = None,
    verify_ms: Annotated[
        float | None,
        typer.Option(
            parser=pacing, metavar=MS, help="Pacing: minimum time of a target forward, ms (0: off); by rows, too."
        ),
    ] = None,
    cloud_draft_ms: Annotated[
        float | None,
        typer.Option(
            parser=pacing, metavar=MS, help="Pacing of a draft model in the cloud, ms (default: as --draft-ms)."
        ),
    ] = None,
    acceptance: Annotated[
        str | None,
        typer.Option(
            metavar="tau:T@N | alpha:A",
            help="Emulated acceptance: the draft is the target's own weights, its logits disturbed until sd gains T "
            "tokens a round of at most N = γ + 1 on these questions (tau:2.92@5 is γ = 4, as is tau:2.92@4+1; without "
            "@N the run's γ), or until a draft token is accepted with chance A (alpha:0.8).",
        ),
    ] = None,
    at_paper_acceptance: Annotated[
        bool,
        typer.Option(
            "--at-paper-acceptance", help="With --point or --study: the acceptance that the point's paper prints."
        ),
    ] = False,
    write: Annotated[
        bool,
        typer.Option(
            "--write",
            help="With --point all --at-paper-acceptance, in a checkout: keep the tables in config/points and "
            "docs/figures.md.",
        ),
    ] = False,
    target_model: Target = None,
    draft_model: Draft = None,
    gguf: Gguf = None,
    exits: Exits = None,
    exit_layers: ExitLayers = None,
    quantize: Quantize = "none",
    deterministic: Deterministic = False,
    compile: Compile = False,
    compile_draft: CompileDraft = False,
    device: Device = "auto",
    dtype: Annotated[
        str,
        typer.Option(
            help="Numbers on both sides: auto (float32 on a CPU, else as stored), float32, float16 or bfloat16. "
            "In the last two, ids are those of ar but for near-ties, which are replayed and counted."
        ),
    ] = "auto",
    out: Annotated[Path | None, typer.Option(help="Folder of the run (default: runs/bench-<time>).")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue the run in --out.")] = False,
    study: Annotated[
        str | None,
        typer.Option(
            help="Ablation studies: threads, gamma, queues, exits, link, several separated by commas, or all; paced to "
            "--point (go2-wifi6). By itself: clients (how many one verifier serves; point specedge-32b) or batch (what "
            "a shared forward costs)."
        ),
    ] = None,
    time_scale: Annotated[
        float | None,
        typer.Option(
            min=0.01, max=10, help="Multiplies every time of an operating point (1; study: 0.25, of clients 1)."
        ),
    ] = None,
    clients: Annotated[
        str | None,
        typer.Option(
            metavar="N,N,...",
            help="So many edges at a time on one verifier, each a process that asks for --seconds: a table of what it "
            "holds. With --study clients or batch: the numbers to measure.",
        ),
    ] = None,
    seconds: Annotated[
        float | None,
        typer.Option(
            min=1, max=3600, help="How long --clients ask, s (10; study clients: 12 times --time-scale; batch: 30)."
        ),
    ] = None,
    groups: Annotated[
        int | None,
        typer.Option(min=1, max=16, help="With --clients: the verifier's interleaved groups, as in specnav serve."),
    ] = None,
    engine: Annotated[
        str | None,
        typer.Option(metavar="own|vllm", help="With --clients: the verifier's engine, as in specnav serve (own)."),
    ] = None,
    draft_backends: Annotated[
        str | None,
        typer.Option(
            metavar="NAME[:TYPE],...",
            help="Compare drafts: torch, gguf (llama.cpp), also with a number type: torch:8bit, gguf:q4_0. Folders are "
            "converted. Times a draft forward, then asks without a link and at --rtt (40).",
        ),
    ] = None,
    draft_models: Annotated[
        str | None,
        typer.Option(metavar="MODEL,...", help="Drafts to compare: folders and GGUF files (the shipped one)."),
    ] = None,
    batch_curve: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="With --study clients: plan with the batch.json of --study batch, beside the measured."
        ),
    ] = None,
    redraw: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Redraw the studies in a folder without running anything."),
    ] = None,
) -> None:
    """Compare methods on text questions: edge and cloud as two processes over an emulated link."""
    from specnav.bench.runner.points import run_points
    from specnav.errors import UsageError

    flags = {
        "questions": (*(questions or ()), *(more_questions or ())) or None,
        "methods": None if methods is None else tuple(name.strip() for name in methods.split(",")),
        "length": length,
        "payload": payload,
        "resample": resample,
        "point": point,
        "limit": limit,
        "max_new_tokens": max_new_tokens,
        "gamma": gamma,
        "temperature": temperature,
        "top_k": top_k,
        "top_p": top_p,
        "min_p": min_p,
        "repetition_penalty": repetition_penalty,
        "seed": seed,
        "rtt_ms": rtt,
        "jitter_ms": jitter,
        "bandwidth_mbps": bandwidth,
        "loss": loss,
        "outages": tuple(outage or ()) or None,
        "draft_ms": draft_ms,
        "verify_ms": verify_ms,
        "cloud_draft_ms": cloud_draft_ms,
        "acceptance": acceptance,
        "at_paper_acceptance": at_paper_acceptance or None,
        "target_model": target_model,
        "draft_model": draft_model,
        "gguf": gguf,
        "exits": exits,
        "exit_layers": exit_layers,
        "quantize": quantize,
        "deterministic": deterministic or None,
        "compile": compile or None,
        "compile_draft": compile_draft or None,
        "device": device,
        "dtype": dtype,
        "out": out,
        "resume": resume,
    }
    if write and (study is not None or clients is not None):
        raise UsageError("--write keeps the tables of operating points; leave --study and --clients out")
    if redraw is not None:
        from specnav.bench.runner.study import redraw as redraw_studies

        if study is not None:
            raise UsageError("--redraw runs nothing; leave --study out")
        raise typer.Exit(redraw_studies(redraw))
    if batch_curve is not None and study != "clients":
        raise UsageError("--batch-curve plans for --study clients; name that")
    if groups is not None and (clients is None or study is not None):
        raise UsageError("--groups is for --clients N; --study clients measures with groups and without")
    if engine is not None and (clients is None or study is not None or engine not in ("own", "vllm")):
        raise UsageError(f"--engine {engine}: choose own or vllm, and --clients N without --study")
    if draft_backends is not None or draft_models is not None:
        from specnav.bench.runner.drafts import run_drafts_study

        if study is not None or clients is not None or (point is not None and "," in point):
            raise UsageError("--draft-backends is a study of its own; leave --study, --clients and further points out")
        raise typer.Exit(run_drafts_study(flags, draft_backends, draft_models, seconds))
    if study == "drafts":
        raise UsageError("study drafts is named by --draft-backends or --draft-models")
    if study == "clients":
        from specnav.bench.runner.clients_study import run_clients_study

        raise typer.Exit(run_clients_study(flags, time_scale, clients, seconds, batch_curve))
    if study == "batch":
        from specnav.bench.runner.batch_study import run_batch_study

        if time_scale is not None:
            raise UsageError("study batch paces nothing; leave --time-scale out")
        if acceptance is not None or at_paper_acceptance:
            raise UsageError("study batch drafts nothing; leave the acceptance out")
        raise typer.Exit(run_batch_study(flags, clients, seconds))
    if clients is not None:
        from specnav.bench.runner.clients import SECONDS, run_capacity

        if study is not None:
            raise UsageError(f"study {study} runs one client; leave --clients out")
        server_flags = () if groups is None else ("--groups", str(groups))
        raise typer.Exit(run_capacity(flags, clients, seconds or SECONDS, server_flags, engine or "own"))
    if seconds is not None:
        raise UsageError("--seconds is for --clients and their study; say how many")
    if study is not None:
        from specnav.bench.runner.study import TIME_SCALE, run_studies

        raise typer.Exit(run_studies(flags, study, time_scale or TIME_SCALE))
    if time_scale is not None and point is None:
        raise UsageError("--time-scale multiplies the times of an operating point; name one with --point, or a --study")
    flags["time_scale"] = time_scale
    raise typer.Exit(run_points(flags, write))


def payloads(
    vocab: Annotated[int, typer.Option(min=2, max=1_000_000, help="Size of the vocabulary.")] = 150_000,
    rounds: Annotated[int, typer.Option(min=1, max=100_000, help="Rounds to measure.")] = 100,
    gamma: Gamma = 4,
    temperature: Annotated[float, typer.Option(min=0.01, max=10, help="Sampling temperature.")] = 1.0,
    top_k: TopK = None,
    top_p: TopP = None,
    noise: Annotated[
        float, typer.Option(min=0, max=100, help="How far the draft's logits are off (standard deviation).")
    ] = 0.7,
    seed: Seed = 0,
) -> None:
    """Measure the bytes of a round of rejection sampling on a large vocabulary: synthetic rows, the real wire."""
    from specnav.payloads import run_payloads

    raise typer.Exit(run_payloads(vocab, rounds, gamma, temperature, top_k, top_p, noise, seed))
