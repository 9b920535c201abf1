"""What other people's scripts lean on, compared with files: options, wire bytes, results, ROS parameters, answers.

A change that means to alter one of them writes it anew and shows it in its diff:
`UPDATE_GOLDEN=1 python -m pytest tests/golden`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import typer.main

from specdec.link import wire
from specdec.models import chat_prompt, load_model
from specdec.models.local import generate_local
from specdec.options import GenerationOptions
from specnav.bags.records import ReplayResults
from specnav.bench.data.questions import load_questions
from specnav.bench.records.bench import BenchResults
from specnav.cli.app import app
from specnav.paths import CONFIG, DEFAULT_TEXT_TARGET
from specnav.results.demo import DemoResults
from tests.helpers.wire_messages import DOWN, UP

HERE = Path(__file__).parent
ANSWERS = 50
TOKENS = 12


def check(name: str, text: str) -> None:
    """The text is that of the file."""
    file = HERE / name
    if os.environ.get("UPDATE_GOLDEN"):
        file.write_text(text)
    assert text == file.read_text(), f"{name} differs; meant? UPDATE_GOLDEN=1 python -m pytest tests/golden"


def as_lines(value: Any) -> str:
    return json.dumps(value, indent=1, ensure_ascii=False) + "\n"


def commands(command: Any, path: str) -> Iterator[tuple[str, Any]]:
    yield path, command
    for name, inner in sorted(getattr(command, "commands", {}).items()):
        yield from commands(inner, f"{path} {name}")


def typed(parameter: Any) -> str:
    kind = parameter.type_descriptor.annotation
    ends = [
        end for end in (getattr(parameter, "min", None), getattr(parameter, "max", None)) if end is not None
    ]
    return getattr(kind, "__name__", str(kind)) + (f" {ends}" if ends else "")


def described(command: Any) -> dict[str, Any]:
    """What a command takes: each option's spellings, type, default, range and help."""
    return {
        "help": command.help,
        "epilog": command.epilog,
        "parameters": [
            {
                "spelled": [*p.opts, *p.secondary_opts],
                "type": typed(p),
                "default": None if callable(p.default) else str(p.default),
                "help": getattr(p, "help", None),
            }
            for p in command.params
            if not getattr(p, "hidden", False)
        ],
    }


@pytest.mark.slow
def test_commands_and_their_options() -> None:
    tree = commands(typer.main.get_command(app), "specnav")
    check("commands.json", as_lines({path: described(command) for path, command in tree}))


def test_bytes_on_the_wire() -> None:
    lines = [f"{wire.encode(message).hex()} {message}\n" for message in (*UP, *DOWN)]
    check("wire.txt", "".join(lines))


@pytest.mark.parametrize(("name", "kind"), [("bench", BenchResults), ("demo", DemoResults), ("replay", ReplayResults)])
def test_fields_of_results_files(name: str, kind: type) -> None:
    check(f"results_{name}.json", as_lines(msgspec.json.schema(kind)))


def test_ros_parameters() -> None:
    nodes = pytest.importorskip("spec_vlm_nav.parameters.nodes")
    rows = {node: [str(parameter) for parameter in table] for node, table in nodes.tables().items()}
    check("ros_parameters.json", as_lines(rows))


@pytest.mark.slow
def test_ids_of_answers() -> None:
    """Every method's answers are compared with the target's own elsewhere: here are those, greedy and drawn."""
    target = load_model(DEFAULT_TEXT_TARGET)
    questions = load_questions([CONFIG / "questions" / "short.jsonl"])
    answers = []
    for number in range(ANSWERS):
        text = questions[number % len(questions)].turns[0]
        options = GenerationOptions(TOKENS, temperature=0.8 * (number >= len(questions)), seed=number)
        ids = generate_local(target, chat_prompt(target, text), options)
        answers.append(f"{' '.join(map(str, ids))}\n")
    check("answers.txt", "".join(answers))
