"""Every flag that a message, a help text or a docstring names exists in the command that it is named for."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer.main

from cloud_verifier.config import ServerConfig
from specdec.link.emulator import build_parser as emulator_parser
from specdec.settings import settings_of
from specnav.cli.app import app
from tests.docs.pages import ROOT, inline_code, markdown_files, ours

FLAG = re.compile(r"(?<![\w(/-])--[a-z][a-z0-9-]*[a-z0-9](?![\w-])")
COMMAND = re.compile(r"\bspecnav((?: [a-z][a-z-]*)+)")
PROGRAMS = {
    "cloud_verifier": ("serve",),
    "specnav/api": ("api", "serve"),
    "specnav/generate.py": ("generate", "serve"),
    "specnav/replay": ("replay", "serve"),
    "specnav/demo": ("demo", "serve"),
    "specnav/top": ("top", "serve"),
    "specnav/doctor": ("doctor", "serve"),
    "specnav/calibrate": ("calibrate",),
    "specnav/fleet": ("fleet up", "fleet status", "fleet upgrade", "generate"),
    "specnav/plan": ("plan memory", "plan fleet", "bench run", "bench clients"),
}
"""Rooms whose messages are of certain commands; the flags of others are those of any program of ours."""
OTHERS = {
    "--ros-args", "--params-file", "--log-level", "--remap", "--show-args", "--symlink-install",  # ROS
    "--gpus", "--publish", "--network", "--rm", "--ipc", "--shm-size", "--profile", "--build", "--user",  # Docker
    "--head", "--block",  # Ray
    "--extra-index-url", "--no-build-isolation", "--no-deps", "--no-binary",  # pip
    "--study", "--clients", "--draft-backends", "--draft-models",  # of bench, as the previous release spelled them
    "--new-token",  # of console_node, which reads it beside the arguments of ROS
}  # fmt: skip
"""Flags of programs whose parsers are not ours."""


@cache
def options() -> dict[str, set[str]]:
    """The flags of every command of specnav, by its words."""
    found: dict[str, set[str]] = {}

    def walk(command: Any, words: tuple[str, ...]) -> None:
        found[" ".join(words)] = {"--help"} | {
            flag for one in command.params for flag in (*one.opts, *one.secondary_opts)
        }
        for name, inner in getattr(command, "commands", {}).items():
            walk(inner, (*words, name))

    walk(typer.main.get_command(app), ())
    return found


@cache
def every_flag() -> set[str]:
    """Of all programs in the repository: commands, and scripts by what their parsers declare."""
    emulator = {flag for action in emulator_parser()._actions for flag in action.option_strings}
    found = set().union(*options().values()) | emulator
    for path in ours("*.py"):
        if "add_argument" in (text := path.read_text(encoding="utf-8")):
            found.update(re.findall(r"[\"'](--[a-z][a-z0-9-]*)[\"']", text))
    return found


def command_of(words: str) -> str | None:
    """The longest command that words after "specnav" name; None for prose such as "specnav and"."""
    parts = words.split()
    for count in range(len(parts), 0, -1):
        if " ".join(parts[:count]) in options():
            return " ".join(parts[:count])
    return None


def named_for(text: str) -> Iterator[tuple[str, str]]:
    """(command, flag) of every "specnav COMMAND ... --flag" in a text, up to the end of that command."""
    found = list(COMMAND.finditer(text))
    for at, match in enumerate(found):
        end = found[at + 1].start() if at + 1 < len(found) else len(text)
        part = re.split(r"[|;`)]|&&|\. |: |, ", text[match.end() : end])[0]
        if (command := command_of(match[1])) is not None:
            yield from ((command, flag) for flag in FLAG.findall(part))


def wrong_in(text: str) -> set[str]:
    return {f"specnav {name} has no {flag}" for name, flag in named_for(text) if flag not in options()[name]}


def sentences(path: Path) -> Iterator[str]:
    """The strings of a module, f-strings with their values left out; not those that are a flag alone."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.JoinedStr):
            yield "".join(part.value if isinstance(part, ast.Constant) else "X" for part in node.values)  # type: ignore[misc]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
            yield node.value


@pytest.mark.slow
@pytest.mark.parametrize(
    "room", ["cloud_verifier", "specdec", "specnav", "ros2_ws/src/spec_vlm_nav/spec_vlm_nav"]
)
def test_flags_in_messages_and_help_exist(room: str) -> None:
    wrong = set()
    for path in (ROOT / room).rglob("*.py"):
        place = str(path.relative_to(ROOT))
        programs = next((names for start, names in PROGRAMS.items() if place.startswith(start)), ())
        known = set().union(*(options()[name] for name in programs)) if programs else every_flag()
        for text in sentences(path):
            named = {flag for _, flag in named_for(text)}
            unknown = set(FLAG.findall(text)) - named - known - OTHERS
            wrong |= {f"{place}: {flag}" for flag in unknown} | {
                f"{place}: {said}" for said in wrong_in(text)
            }
    assert not wrong


@pytest.mark.parametrize(
    "page",
    [page for page in markdown_files() if page.name != "CHANGELOG.md"],
    ids=lambda page: str(page.relative_to(ROOT)),
)
def test_flags_that_stand_alone_on_pages_exist(page: Path) -> None:
    """And those behind a command that is named without "specnav". With it: test_links."""
    spans = inline_code(page.read_text(encoding="utf-8"))
    alone = {flag for span in spans if span.startswith("--") for flag in FLAG.findall(span)}
    assert not alone - every_flag() - OTHERS
    assert not set().union(*(wrong_in(f"specnav {span}") for span in spans if command_of(span)))


def test_a_flag_that_a_command_lacks_is_found() -> None:
    assert wrong_in("say specnav serve --no-such-flag") == {"specnav serve has no --no-such-flag"}
    assert wrong_in("`specnav fleet up --replicas 2` | specnav serve --gpus") == {
        "specnav serve has no --gpus"
    }
    assert wrong_in("specnav serve --kv-gb 2 --max-message-mb 3 --groups 2") == set()


def test_serve_knows_all_settings_of_a_verifier() -> None:
    flags = {flag for one in settings_of(ServerConfig).values() for flag in one.spellings}
    assert flags <= options()["serve"] and flags - {"--bind"} <= options()["fleet up"]
