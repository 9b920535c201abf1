# SPDX-License-Identifier: Apache-2.0
"""`specnav bench`: commands that compare methods. Their options are the fields of BenchConfig."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import typer
from typer.core import TyperGroup

from specnav.cli.from_settings import makes, only_commands_among, takes
from specnav.errors import UsageError


class BenchGroup(TyperGroup):
    """Also accepts the previous release's spelling, one command with flags, with a warning."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse as click does, after translating the old spelling."""
        first = args[0] if args else ""
        if (
            first not in self.commands
            and first != "--help"
            and (first[:1] in ("", "-") or "." in first or ":" in first)
        ):
            args = modern(args)
            typer.echo(
                f"specnav bench OPTIONS is now specnav bench {args[0]}: the old spelling will be removed soon",
                err=True,
            )
        return super().parse_args(ctx, args)


def modern(args: Sequence[str]) -> list[str]:
    """Translate the old `specnav bench OPTIONS` into a command and its options. Raises UsageError."""
    words = [part for word in args for part in (word.split("=", 1) if word.startswith("--") else [word])]

    def taken(flag: str) -> str | None:
        if flag not in words:
            return None
        place = words.index(flag)
        value = words[place + 1 : place + 2]
        del words[place : place + 2]
        return value[0] if value else ""

    backends, models = taken("--draft-backends"), taken("--draft-models")
    study, clients, point = taken("--study"), taken("--clients"), taken("--point")
    if backends is not None or models is not None:
        if study is not None or clients is not None:
            raise UsageError("--draft-backends is now specnav bench drafts: leave --study and --clients out")
        named = {"--backends": backends, "--models": models, "--point": point}
        return [
            "drafts",
            *(word for flag, value in named.items() if value is not None for word in (flag, value)),
            *words,
        ]
    if study is not None or "--redraw" in words:
        named = {"--clients": clients, "--point": point}
        given = [word for flag, value in named.items() if value is not None for word in (flag, value)]
        return ["study", *([] if study is None else [study]), *given, *words]
    at_point = [] if point is None else ["--point", point]
    if clients is not None:
        return ["clients", clients, *at_point, *words]
    if point is not None and (point == "all" or "," in point):
        return ["points", point, *words]
    return ["run", *at_point, *words]


bench_app = typer.Typer(
    cls=BenchGroup,
    no_args_is_help=False,
    help="Compare methods on text questions, with edge and cloud as separate processes.",
)


AT_PAPER = {
    "limit": {"shown": "none, or 2 with --at-paper-acceptance"},
    "max_new_tokens": {"shown": "64 tokens, or 48 with --at-paper-acceptance"},
}
"""`changes` to a run's settings in commands that shorten it at the paper's acceptance."""
OF_STUDY = {name: {"shown": "the study's own"} for name in ("methods", "limit", "max_new_tokens", "point")}


def _command(
    name: str, epilog: str, leave_out: Sequence[str] = (), changes: Mapping[str, Mapping[str, Any]] | None = None
) -> Callable[[Callable[..., Any]], Any]:
    """A command of the group that has the settings of a run as its options. changes: to their help (see `takes`)."""

    def wrap(function: Callable[..., Any]) -> Any:
        # Options are made if the command line contains "bench", in either spelling.
        function.__name__ = "bench"
        made = takes("given", "specnav.bench.settings:BenchConfig", leave_out=leave_out, changes=changes)(function)
        return bench_app.command(name, epilog=epilog)(made)

    return wrap


@_command(
    "run",
    epilog="Examples:  specnav bench run   |   specnav bench run mt_bench.jsonl --methods ar,sd --rtt 40   |   "
    "specnav bench run --point go2-wifi6 --at-paper-acceptance   |   "
    "specnav bench run --acceptance tau:2.92@5 --draft-ms 20 --verify-ms 100",
    changes=AT_PAPER,
)
@makes("words", "specnav.bench.settings:RunWords")
def run(given: Mapping[str, Any], words: Any) -> None:
    """Compare methods on the same questions, with edge and cloud as two processes over an emulated link."""
    flags = _flags(given, words)
    from specnav.bench.runner.points import run_point

    if words.files:
        flags["questions"] = (*flags.get("questions", ()), *words.files)
    raise typer.Exit(run_point(flags))


@_command(
    "points",
    epilog="Example:  specnav bench points all --at-paper-acceptance --out runs/points",
    leave_out=("point",),
    changes={**AT_PAPER, "out": {"shown": "runs/points-<time>"}},
)
@makes("words", "specnav.bench.settings:PointsWords")
def points(given: Mapping[str, Any], words: Any) -> None:
    """Run every operating point into its own folder, with an index page."""
    flags = _flags(given, words)
    from specnav.bench.runner.points import run_points

    raise typer.Exit(run_points({**flags, "point": words.names}, words.write))


@_command(
    "study",
    epilog="Examples:  specnav bench study gamma,link   |   specnav bench study batch --out runs/batch   |   "
    "specnav bench study clients --batch-curve runs/batch   |   specnav bench study payloads --with vocab=150000",
    changes={
        **OF_STUDY,
        "time_scale": {"shown": "0.25, or 1 for clients"},
        "out": {"shown": "runs/study-<time>"},
    },
)
@makes("words", "specnav.bench.settings:StudyWords")
def study(given: Mapping[str, Any], words: Any) -> None:
    """Vary one parameter and keep everything else; plots the results beside the papers' figures."""
    flags = _flags(given, words)
    from specnav.bench.runner.studies import run_named

    raise typer.Exit(run_named(flags, words))


@_command(
    "clients",
    epilog="Example:  specnav bench clients 1,8,16 --methods sd --verify-ms 40",
    leave_out=("resume",),
    changes={"out": {"shown": "runs/clients-<time>"}},
)
@makes("words", "specnav.bench.settings:ClientsWords")
@takes("server", "cloud_verifier.config:ServerConfig", only=("groups",))
def clients(given: Mapping[str, Any], server: Mapping[str, Any], words: Any) -> None:
    """Run several edges at a time, each a process, against one verifier: throughput and latency by number of edges."""
    flags = _flags(given, words)
    from specnav.bench.runner.clients import run_capacity

    server_flags = ("--groups", str(server["groups"])) if "groups" in server else ()
    raise typer.Exit(run_capacity(flags, words.counts, words.seconds, server_flags))


@_command(
    "drafts",
    epilog="Example:  specnav bench drafts --backends torch:4bit,gguf:q4_0 --models models/Qwen2-0.5B --rtt 40",
    leave_out=("draft_model", "acceptance"),
    changes={
        "methods": {"shown": "ar,sd,fsd,auto"},
        "limit": {"shown": "8"},
        "max_new_tokens": {"shown": "48 tokens"},
        "rtt_ms": {"shown": "40 ms"},
        "out": {"shown": "runs/study-<time>"},
    },
)
@makes("words", "specnav.bench.settings:DraftsWords")
def drafts(given: Mapping[str, Any], words: Any) -> None:
    """Compare drafts: time a forward pass of each, then ask questions without a link and at --rtt (40)."""
    from specnav.bench.runner.drafts import run_drafts_study

    raise typer.Exit(run_drafts_study(given, words))


def _flags(given: Mapping[str, Any], words: Any) -> dict[str, Any]:
    """The settings of a run, including the source of the acceptance."""
    from specnav.bench.data.names import check_names

    if given.get("methods"):
        check_names(given["methods"])  # before torch is imported, which takes seconds
    return {**given, "at_paper_acceptance": True} if words.at_paper_acceptance else dict(given)


def add_bench_commands(app: typer.Typer) -> None:
    """Add the commands of this module, and the old names of two commands that became studies."""
    app.add_typer(bench_app, name="bench")
    for name in ("payloads", "cost"):
        app.command(
            name, hidden=True, context_settings={"ignore_unknown_options": True, "allow_extra_args": True}
        )(_became_a_study(name))


def _became_a_study(name: str) -> Any:
    def became(ctx: typer.Context) -> None:
        words = re.sub(
            r"--([\w-]+)[ =]+", lambda flag: f"--with {flag[1].replace('-', '_')}=", " ".join(ctx.args)
        )
        args = ["study", name, *words.split()]
        typer.echo(
            f"specnav {name} is now specnav bench {' '.join(args)}: the old spelling will be removed soon",
            err=True,
        )
        with only_commands_among(("bench",)):
            command = typer.main.get_command(bench_app)
        code = command.main(args, "specnav bench", standalone_mode=False)
        raise typer.Exit(code or 0)

    became.__doc__ = f"Is now `specnav bench study {name}`."
    return became
