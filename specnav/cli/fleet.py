"""`specnav fleet …`: many verifiers as one, on Ray."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from specnav.cli.options import Exits, Gguf, TensorParallel

fleet_app = typer.Typer(
    no_args_is_help=True,
    help="A fleet of verifiers on Ray: edges know one address, answers go on when a verifier or a machine dies.",
)

Ray = Annotated[
    str,
    typer.Option("--ray", metavar="auto|HOST:PORT", help="The Ray cluster; auto: this machine's, or a new one here."),
]
State = Annotated[Path, typer.Option("--state", metavar="FOLDER", help="Where the directory keeps what must last.")]
Wait = Annotated[float, typer.Option("--wait", min=1, max=86_400, metavar="S", help="So long at most for replicas.")]
Replicas = Annotated[
    str, typer.Option(metavar="N|LEAST:MOST", help="Verifiers; with two numbers the fleet scales by itself.")
]
Model = Annotated[str | None, typer.Option(help="Target: a folder, the same on all nodes, or a hub id.")]
Engine = Annotated[str | None, typer.Option(help="own, or vllm where it is set up.")]
File = Annotated[Path | None, typer.Option("--config", metavar="FILE", help="YAML of verifier settings.")]
Keys = Annotated[
    str | None, typer.Option(metavar="FOLDER", help="Keys of those who may come in; on every node the same.")
]
Insecure = Annotated[bool, typer.Option("--insecure", help="No keys, though other machines reach the addresses.")]
STATE = Path("runs/fleet")


@fleet_app.command(
    epilog="Examples:  specnav fleet up --replicas 2   |   "
    "specnav fleet up --ray 10.0.0.5:6379 --replicas 2:8 --model Qwen/Qwen2-VL-7B-Instruct --engine vllm --keys keys"
)
def up(
    ray: Ray = "auto",
    replicas: Replicas = "1",
    model: Model = None,
    engine: Engine = None,
    tensor_parallel: TensorParallel = None,
    quantize: Annotated[str | None, typer.Option(help="none, 8bit or 4bit.")] = None,
    dtype: Annotated[str | None, typer.Option(help="auto, float32, float16 or bfloat16.")] = None,
    device: Annotated[str | None, typer.Option(help="auto, cpu, cuda …")] = None,
    draft_model: Annotated[str | None, typer.Option(help="Draft for methods that draft in the cloud.")] = None,
    gguf: Gguf = None,
    exits: Exits = None,
    keys: Keys = None,
    insecure: Insecure = False,
    config: File = None,
    port: Annotated[
        int, typer.Option(min=0, max=65_535, help="Where edges ask the directory; 0 takes a free one.")
    ] = 5600,
    cpus: Annotated[float, typer.Option(min=0, max=1024, help="CPUs that Ray sets aside for a replica.")] = 1.0,
    gpus: Annotated[
        float | None,
        typer.Option(min=0, max=64, help="GPUs of a replica. Default: one, or --tensor-parallel, where there are any."),
    ] = None,
    resource: Annotated[
        str, typer.Option(metavar="NAME", help="Only on nodes with this Ray resource; a replica takes one of it.")
    ] = "",
    edges_per_replica: Annotated[
        float, typer.Option(min=0.1, max=10_000, help="Answers at a time that one replica is to have, to scale by.")
    ] = 8.0,
    idle: Annotated[
        float, typer.Option(min=0, max=86_400, metavar="S", help="So long with less to do, and one replica goes.")
    ] = 60.0,
    surge: Annotated[
        bool, typer.Option("--surge/--no-surge", help="Upgrades start a new replica before an old one goes.")
    ] = True,
    metrics: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="The directory's /metrics, and /targets of all replicas.")
    ] = "",
    wait: Wait = 600.0,
    state: State = STATE,
) -> None:
    """Start a directory and replicas, wait until they serve, and leave them running. Prints the address for edges."""
    from specnav.fleet.run import UpConfig, run_up

    flags = _flags(model, engine, quantize, dtype, device, draft_model, gguf, exits, keys, insecure)
    flags |= {} if tensor_parallel is None else {"tensor_parallel": tensor_parallel}
    given = UpConfig(
        ray=ray,
        replicas=replicas,
        flags=flags,
        file=config,
        state=state,
        port=port,
        cpus=cpus,
        gpus=gpus,
        resource=resource,
        edges_per_replica=edges_per_replica,
        idle_s=idle,
        surge=surge,
        metrics=metrics,
        wait_s=wait,
    )
    raise typer.Exit(run_up(given))


@fleet_app.command(epilog="Examples:  specnav fleet status   |   specnav fleet status --ray 10.0.0.5:6379 --json")
def status(
    ray: Ray = "auto",
    as_json: Annotated[bool, typer.Option("--json", help="Machine-readable output.")] = False,
    state: State = STATE,
) -> None:
    """Show replicas, their load and what is wrong; exit code 1 where fewer serve than are wanted."""
    from specnav.fleet.run import run_status

    raise typer.Exit(run_status(ray, state, as_json))


@fleet_app.command(epilog="Examples:  specnav fleet scale 4   |   specnav fleet scale 2:8")
def scale(
    replicas: Annotated[str, typer.Argument(metavar="N|LEAST:MOST", help="Verifiers.")],
    ray: Ray = "auto",
    wait: Wait = 600.0,
    state: State = STATE,
) -> None:
    """Change the number of replicas; those that go end their answers first."""
    from specnav.fleet.run import run_scale

    raise typer.Exit(run_scale(ray, state, replicas, wait))


@fleet_app.command(
    epilog="Examples:  specnav fleet upgrade   |   specnav fleet upgrade --model models/target-2   |   "
    "specnav fleet upgrade --quantize 4bit --no-surge"
)
def upgrade(
    model: Model = None,
    engine: Engine = None,
    quantize: Annotated[str | None, typer.Option(help="none, 8bit or 4bit.")] = None,
    dtype: Annotated[str | None, typer.Option(help="auto, float32, float16 or bfloat16.")] = None,
    device: Annotated[str | None, typer.Option(help="auto, cpu, cuda …")] = None,
    draft_model: Annotated[str | None, typer.Option(help="Draft for methods that draft in the cloud.")] = None,
    gguf: Gguf = None,
    exits: Exits = None,
    config: File = None,
    surge: Annotated[
        bool | None, typer.Option("--surge/--no-surge", help="Start a new one before an old one goes (as before).")
    ] = None,
    ray: Ray = "auto",
    wait: Wait = 3600.0,
    state: State = STATE,
) -> None:
    """Replace all replicas one after another, with the settings given here or the same ones; answers go on."""
    from specnav.fleet.run import run_upgrade

    flags = _flags(model, engine, quantize, dtype, device, draft_model, gguf, exits, None, False)
    raise typer.Exit(run_upgrade(ray, state, config, flags, surge, wait))


@fleet_app.command(epilog="Example:  specnav fleet down")
def down(ray: Ray = "auto", state: State = STATE) -> None:
    """End all replicas and the directory, and Ray where `up` has started it."""
    from specnav.fleet.run import run_down

    raise typer.Exit(run_down(ray, state))


def _flags(
    model: str | None,
    engine: str | None,
    quantize: str | None,
    dtype: str | None,
    device: str | None,
    draft_model: str | None,
    gguf: str | None,
    exits: str | None,
    keys: str | None,
    insecure: bool,
) -> dict[str, Any]:
    """What was given, by the name of the verifier's setting."""
    flags: dict[str, Any] = {"model": model, "engine": engine, "quantize": quantize, "dtype": dtype}
    flags |= {"device": device, "draft_model": draft_model, "gguf": gguf, "exits": exits, "keys": keys}
    flags["insecure"] = insecure or None
    return {name: value for name, value in flags.items() if value is not None}
