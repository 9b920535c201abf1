"""`specnav train …`: the commands that make the default models again; each continues where a killed run stopped."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from specnav.cli.options import Key, Seed

train_app = typer.Typer(no_args_is_help=True, help="Train the default models.")

Workers = Annotated[int, typer.Option(min=1, max=64, help="Processes, one CPU thread each.")]


def _run_beside(out: Path) -> Path:
    """The run folder where none is named."""
    place = out.resolve()
    return place.parent / f"{place.name}.run"


@train_app.command(
    "vlm", epilog="Examples:  specnav train vlm   |   specnav train vlm --out runs/pair --minutes 30"
)
def train_vlm_pair(
    out: Annotated[
        Path | None, typer.Option(help="Folder for nav-target and nav-draft (runs/vlm-pair).")
    ] = None,
    work: Annotated[
        Path | None,
        typer.Option(help="Folder for frames, caches and checkpoints, which are reused (runs/train)."),
    ] = None,
    frames: Annotated[int, typer.Option(help="Camera frames to render (a multiple of 1000).")] = 48_000,
    minutes: Annotated[
        float,
        typer.Option(
            min=0,
            max=100_000,
            help="Shorten the three stages to take about this many minutes (0: all steps).",
        ),
    ] = 0.0,
    seed: Seed = 7,
    workers: Workers = 2,
) -> None:
    """Train the robot's vision-language pair on rooms of the simulator and an oracle that knows them."""
    from specnav.paths import RUNS
    from specnav.recipes.vlm import TrainVlmConfig, train_vlm
    from specnav.signals import ends_on_signals

    # The stages' shares of the time in the run that made the shipped pair.
    tower, target, draft = 0.4 * minutes, 0.45 * minutes, 0.15 * minutes
    config = TrainVlmConfig(
        out=out or RUNS / "vlm-pair",
        data_dir=work or RUNS / "train",
        frames=frames,
        tower_minutes=tower,
        target_minutes=target,
        draft_minutes=draft,
        seed=seed,
        workers=workers,
    )
    with ends_on_signals():
        train_vlm(config)


@train_app.command("text", epilog="Example:  specnav train text --minutes 30 --questions mt_bench.jsonl")
def train_text_pair(
    out: Annotated[
        Path | None, typer.Option(help="Folder for text-target and text-draft (default_models/).")
    ] = None,
    run: Annotated[
        Path | None,
        typer.Option(help="Folder for checkpoints; the same folder continues a run (runs/train-text)."),
    ] = None,
    minutes: Annotated[
        float,
        typer.Option(
            min=0, max=100_000, help="Shorten the stages to take about this many minutes (0: all steps)."
        ),
    ] = 0.0,
    seed: Seed = 0,
    workers: Workers = 2,
    library: Annotated[
        Path | None, typer.Option(help="Python sources to learn from (default: this interpreter's library).")
    ] = None,
    questions: Annotated[
        list[Path] | None,
        typer.Option(help="A .jsonl file of questions to measure; may be given several times."),
    ] = None,
) -> None:
    """Train the text pair on this interpreter's standard library; a killed run continues where it stopped."""
    from specnav.paths import DEFAULT_TEXT_TARGET, RUNS
    from specnav.recipes.text.train import TextSchedule, TrainTextConfig, train_text
    from specnav.signals import ends_on_signals

    config = TrainTextConfig(
        out=out or DEFAULT_TEXT_TARGET.parent,
        run=run or RUNS / "train-text",
        seed=seed,
        workers=workers,
        schedule=TextSchedule.within(minutes) if minutes else TextSchedule(),
        questions=tuple(questions or ()),
        library=library,
    )
    with ends_on_signals():
        train_text(config)


@train_app.command(
    "exits",
    epilog="Examples:  specnav train exits --target default_models/nav-target --lr 3e-3 --out runs/nav-exits   |   "
    "specnav train exits --target lmsys/vicuna-7b-v1.5 --data sharegpt.json --out runs/vicuna-exits",
)
def train_early_exits(
    target: Annotated[str, typer.Option(help="Hugging Face folder or hub id; it is not changed.")],
    out: Annotated[Path, typer.Option(help="Folder for the adapters, their card and curves.")],
    data: Annotated[
        str,
        typer.Option(
            help="ShareGPT or SpaceLLaVA conversations, or plain texts (JSON, JSONL); default: the target's own words."
        ),
    ] = "default",
    layers: Annotated[
        str, typer.Option(help="Exits after: all, every:K, or layers from 0 like 1,3,5.")
    ] = "all",
    width: Annotated[
        int, typer.Option(min=0, help="Width of the bottleneck (0: as published for a model of this size).")
    ] = 0,
    epochs: Annotated[float, typer.Option(help="How often each sample is read, on average.")] = 10.0,
    lr: Annotated[float, typer.Option(help="Highest learning rate.")] = 1e-4,
    batch: Annotated[int, typer.Option(min=1, help="Samples per update and process.")] = 1,
    samples: Annotated[
        int, typer.Option(min=2, help="With the default data: samples that the target writes.")
    ] = 2000,
    length: Annotated[int, typer.Option(min=3, help="Cut samples to this many tokens.")] = 1024,
    rows: Annotated[
        int, typer.Option(min=1, help="Tokens per sample and update that are learnt from.")
    ] = 128,
    tokens: Annotated[
        int, typer.Option(min=0, help="Tokens of the vocabulary that the loss looks at in a batch (0: all).")
    ] = 0,
    minutes: Annotated[
        float,
        typer.Option(min=0, max=100_000, help="Shorten training to about this many minutes (0: all epochs)."),
    ] = 0.0,
    run: Annotated[
        Path | None,
        typer.Option(help="Folder for samples and checkpoints; the same folder continues a run (OUT.run)."),
    ] = None,
    seed: Seed = 0,
    workers: Workers = 1,
) -> None:
    """Train early-exit adapters for a target; a killed run continues where it stopped."""
    from specnav.recipes.exits.train import TrainExitsConfig, train_exits
    from specnav.signals import ends_on_signals

    config = TrainExitsConfig(
        target=target,
        out=out,
        run=run or _run_beside(out),
        data=data,
        layers=layers,
        width=width,
        epochs=epochs,
        lr=lr,
        minutes=minutes,
        samples=samples,
        length=length,
        rows=rows,
        batch=batch,
        seed=seed,
        workers=workers,
        tokens=tokens,
    )
    with ends_on_signals():
        train_exits(config)


@train_app.command(
    "draft",
    epilog="Examples:  specnav train draft --target default_models/text-target --draft layers:0,7 --out runs/my-draft"
    "   |   specnav train draft --target default_models/nav-target --draft default_models/nav-draft --bag BAG "
    "--out runs/room-draft",
)
def train_a_draft(
    draft: Annotated[
        str, typer.Option(help="What to start from: a folder or hub id, or layers of the target, like layers:0,7.")
    ],
    out: Annotated[Path, typer.Option(help="Folder for the draft, its card and its acceptance curve.")],
    target: Annotated[
        str, typer.Option(help="Folder or hub id; it is not changed. Or give --connect, or --verdict-log alone.")
    ] = "",
    connect: Annotated[
        str,
        typer.Option(help="Ask a running verifier, tcp://HOST:PORT: the target's picks are learnt, not its rows."),
    ] = "",
    key: Key = None,
    verdict_log: Annotated[
        list[Path] | None, typer.Option(help="A folder that serve or generate --verdict-log has written.")
    ] = None,
    questions: Annotated[
        list[Path] | None, typer.Option(help="A .jsonl file of questions, or a text of one a line; may be repeated.")
    ] = None,
    text: Annotated[
        list[Path] | None, typer.Option(help="A text file, or a folder of them, to read and to go on from.")
    ] = None,
    bag: Annotated[
        list[Path] | None, typer.Option(help="A rosbag2 folder, .mcap or .db3: its frames and instructions.")
    ] = None,
    instruction: Annotated[str, typer.Option(help="For bags without instructions of their own.")] = "",
    held_out_questions: Annotated[
        list[Path] | None, typer.Option(help="Questions to measure on only (default: some of those given).")
    ] = None,
    assistant: Annotated[
        bool,
        typer.Option(
            "--assistant", help="Make up requests to a chat assistant, for a published instruct model."
        ),
    ] = False,
    prompts: Annotated[int, typer.Option(min=8, help="Prompts made up where no data are given.")] = 4000,
    held_out: Annotated[int, typer.Option(min=1, help="Prompts that are measured on only.")] = 64,
    gamma: Annotated[int, typer.Option(min=1, max=64, help="Draft length that τ is measured at.")] = 4,
    length: Annotated[int, typer.Option(min=16, help="Tokens of a row, prompt and answer.")] = 256,
    new_tokens: Annotated[int, typer.Option(min=1, help="Tokens of an answer.")] = 128,
    steps: Annotated[int, typer.Option(min=1, help="Updates.")] = 2000,
    minutes: Annotated[
        float, typer.Option(min=0, max=100_000, help="Shorten training to about this many minutes (0: all steps).")
    ] = 0.0,
    batch: Annotated[int, typer.Option(min=1, help="Rows per update and process.")] = 12,
    lr: Annotated[float, typer.Option(help="Highest learning rate.")] = 2e-3,
    on_policy: Annotated[float, typer.Option(help="Share of rows that the draft itself has said.")] = 0.5,
    given_share: Annotated[float, typer.Option(help="Share of rows from texts that were given.")] = 0.25,
    reverse: Annotated[float, typer.Option(help="Share of the reverse KL in the distance.")] = 0.25,
    hard: Annotated[float, typer.Option(help="Share of the target's likeliest token in the loss.")] = 0.5,
    run: Annotated[
        Path | None,
        typer.Option(help="Folder for samples and checkpoints; the same folder continues a run (OUT.run)."),
    ] = None,
    share: Annotated[
        bool,
        typer.Option("--share", help="Store the layers alone: embeddings, head and tokenizer stay the target's."),
    ] = False,
    share_first: Annotated[
        int, typer.Option(min=0, help="With --share: this many first layers also stay the target's.")
    ] = 0,
    tokens: Annotated[
        int, typer.Option(min=0, help="Tokens of the vocabulary that the loss looks at in a batch (0: all).")
    ] = 0,
    compile: Annotated[bool, typer.Option(help="Let torch compile the training step.")] = True,
    seed: Seed = 0,
    workers: Workers = 1,
) -> None:
    """Teach a draft model to predict a target; a killed run continues where it stopped."""
    from specnav.recipes.drafts.data.sources import Sources
    from specnav.recipes.drafts.train import TrainDraftConfig, train_draft
    from specnav.signals import ends_on_signals

    sources = Sources(
        tuple(questions or ()),
        tuple(text or ()),
        tuple(bag or ()),
        tuple(verdict_log or ()),
        tuple(held_out_questions or ()),
        instruction,
        assistant,
    )
    config = TrainDraftConfig(
        target=target,
        draft=draft,
        out=out,
        run=run or _run_beside(out),
        connect=connect,
        key=key,
        sources=sources,
        prompts=prompts,
        held_out=held_out,
        gamma=gamma,
        length=length,
        new_tokens=new_tokens,
        steps=steps,
        minutes=minutes,
        batch=batch,
        lr=lr,
        on_policy=on_policy,
        given_share=given_share,
        reverse=reverse,
        hard=hard,
        seed=seed,
        workers=workers,
        compile=compile,
        share=share,
        share_first=share_first,
        tokens=tokens,
    )
    with ends_on_signals():
        result = train_draft(config)
    typer.echo(
        f"{result.folder}: τ {result.before.tau:.2f} before, {result.after.tau:.2f} after, at γ = {gamma} on "
        f"{result.after.answers} answers held out"
    )
