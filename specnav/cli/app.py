# SPDX-License-Identifier: Apache-2.0
"""The `specnav` command: a typer app whose commands parse flags and call the package that does the work.

Packages are imported inside the commands, so that `specnav --help` is fast. An error that a user can act on
(see `specnav.errors`) ends as one line on stderr and a non-zero exit code, never as a traceback.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Any

import typer

from specnav.cli.bags import add_bag_commands
from specnav.cli.bench import add_bench_commands
from specnav.cli.blackbox import add_blackbox_command
from specnav.cli.doctor import add_doctor_command
from specnav.cli.drill import add_drill_commands
from specnav.cli.fleet import fleet_app
from specnav.cli.from_settings import EDGE, PAIR, SHIPPED_TARGET, makes, only_commands_among, takes
from specnav.cli.keys import keys_app
from specnav.cli.models import convert_app, models_app, plan_app
from specnav.cli.robot import add_robot_commands
from specnav.cli.serving import add_serving_commands
from specnav.cli.streams import steady_streams
from specnav.cli.train import train_app
from specnav.errors import INTERRUPTED, UsageError, user_errors
from specnav.signals import ends_on_signals

NOT_OF_DEMO = (
    "split", "episode_timeout_s", "max_new_tokens", "verify_ms", "study_decisions", "compare_decisions",
    "robot_config", "sim_config", "cloud_config", "start_timeout_s",
)  # fmt: skip
"""Settings of a demo that are set by programs only, not on the command line."""

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    help="Speculative edge-cloud control of a robot by a vision-language model.",
    epilog="Start with [bold]specnav doctor[/], then [bold]specnav demo[/].",
)


def show_version(asked: bool) -> None:
    """Print the version and end."""
    if asked:
        from importlib.metadata import version

        typer.echo(f"specnav {version('specnav')}")
        raise typer.Exit


@app.callback()
def specnav(
    version: Annotated[
        bool, typer.Option("--version", callback=show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Options of all commands together."""


app.add_typer(train_app, name="train")
app.add_typer(keys_app, name="keys")
app.add_typer(fleet_app, name="fleet")
app.add_typer(plan_app, name="plan")
app.add_typer(convert_app, name="convert")
app.add_typer(models_app, name="models")


@app.command(
    epilog="Examples:  specnav demo   |   specnav demo --console   |   "
    "specnav demo --episodes 10 --rtt 40 --headless   |   specnav demo --method ar"
)
@makes("page", "specnav.demo.config:PageConfig")
@takes("named", EDGE, only=("pair",), changes=PAIR)
@takes("given", "specnav.demo.config:DemoConfig", leave_out=NOT_OF_DEMO)
def demo(given: dict[str, Any], named: dict[str, str], page: Any) -> None:
    """Let a simulated robot follow instructions: verifier, simulator and ROS nodes as processes on this machine."""
    from specnav.demo.config import DemoConfig
    from specnav.demo.run import run_demo
    from specnav.published.pairs import with_pair

    config = DemoConfig(**with_pair(named.get("pair"), given, sees=True))
    config = replace(config, headless=config.headless or not sys.stdout.isatty())
    if page.console:
        from specnav.demo.console import run_console

        raise typer.Exit(run_console(config, page))
    if page.connect:
        raise UsageError("--connect needs --console: a run with a report starts its own target for comparison")
    raise typer.Exit(run_demo(config))


add_bench_commands(app)
add_bag_commands(app)
add_blackbox_command(app)
add_drill_commands(app)
add_robot_commands(app)
add_serving_commands(app)


@app.command(
    epilog="Examples:  specnav serve --bind tcp://0.0.0.0:5555 --keys keys --model Qwen/Qwen2-VL-7B-Instruct "
    "--quantize 4bit   |   specnav serve --bind tcp://0.0.0.0:5555 --insecure"
)
@takes("given", "cloud_verifier.config:ServerConfig", changes=SHIPPED_TARGET)
@makes("source", "specnav.serve:ServeSource")
def serve(given: dict[str, Any], source: Any) -> None:
    """Run the cloud verifier: it holds the target model and answers drafts with verdicts until SIGINT or SIGTERM."""
    from specnav.serve import run_serve

    raise typer.Exit(run_serve(source, given))


@app.command(
    epilog='Examples:  specnav generate "find the silver bottle" --image frame.jpg   |   '
    "specnav generate - --pair smollm2 < question.txt   |   "
    'specnav generate "find the silver bottle" --connect tcp://CLOUD:5555 --key robot-1.key'
)
@makes("config", "specnav.generate:GenerateConfig")
def generate(config: Any) -> None:
    """Generate one answer, streamed to stdout as it is verified."""
    from specnav.generate import run_generate

    raise typer.Exit(run_generate(config))


add_doctor_command(app)


def refuse_other_bytes(words: Sequence[str]) -> None:
    """Raise UsageError for a word that is no text: results and reports, which name files and models, are UTF-8."""
    for word in words:
        try:
            os.fsencode(word).decode()  # where the locale is not UTF-8, `word` may hold its bytes in another way
        except UnicodeError as error:
            raise UsageError(f"{word!r} is not text in UTF-8: rename what has this name") from error


def main() -> None:
    """Entry point of the console script."""
    steady_streams()
    with user_errors(), ends_on_signals():
        refuse_other_bytes(sys.argv[1:])
        try:
            # standalone_mode would print the parser's errors as a box of several lines.
            with only_commands_among(sys.argv[1:]):
                code = app(standalone_mode=False)
        except typer.Abort:  # Ctrl-C, of older releases of typer
            raise KeyboardInterrupt from None
        if code == INTERRUPTED:  # of newer ones, or of a command that kept what it had
            raise KeyboardInterrupt
        sys.exit(code)


if __name__ == "__main__":
    main()
