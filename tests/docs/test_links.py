"""Documentation leads somewhere: links, anchors, commands with their flags, modules and make targets. No network."""

from __future__ import annotations

import re
import shlex
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import urlsplit

import click
import pytest
import typer

from specnav.cli.app import app
from tests.docs.pages import ROOT, anchors, inline_code, links, markdown_files, ours, shell_lines

FILES = markdown_files()
IDS = [str(path.relative_to(ROOT)) for path in FILES]
SPECNAV = typer.main.get_command(app)
PLACEHOLDERS = {"COMMAND"}


def complaint(link: str, page: Path) -> str:
    """What is wrong with a link of a page; empty if nothing is."""
    if re.match(r"[a-zA-Z][a-zA-Z+.-]*:", link):
        parts = urlsplit(link)
        well_formed = parts.scheme in ("http", "https") and re.fullmatch(
            r"[\w.-]+\.[a-z]{2,}(:\d+)?", parts.netloc
        )
        return "" if well_formed or parts.scheme == "mailto" else "is not a well-formed address"
    path, _, anchor = link.partition("#")
    target = (page.parent / path).resolve() if path else page
    if not target.is_relative_to(ROOT.resolve()):
        return "leads out of the repository"
    if not target.exists():
        return "leads to no file"
    if anchor and (target.suffix != ".md" or anchor not in anchors(target.read_text(encoding="utf-8"))):
        return "names no heading there"
    return ""


@pytest.mark.parametrize("page", FILES, ids=IDS)
def test_every_link_of_a_page_leads_somewhere(page: Path) -> None:
    found = {link: complaint(link, page) for link in links(page.read_text(encoding="utf-8"))}
    assert not {link: wrong for link, wrong in found.items() if wrong}


def test_dead_links_are_noticed(tmp_path: Path) -> None:
    page = ROOT / "docs/index.md"
    for link, wrong in (
        ("nowhere.md", "leads to no file"),
        ("map.md#nothing", "names no heading there"),
        ("#nothing", "names no heading there"),
        ("../../elsewhere", "leads out of the repository"),
        ("https://nowhere", "is not a well-formed address"),
        ("htps://example.org", "is not a well-formed address"),
    ):
        assert complaint(link, page) == wrong
    assert not complaint("map.md#the-words", page) and not complaint("https://example.org/a", page)
    assert links("[a](b.md) `[c](d.md)` ![e](f.png)\n```\n[g](h.md)\n```\n[i]: j.md\n") == [
        "b.md",
        "f.png",
        "j.md",
    ]
    assert anchors("# A `b` c's\n## D\n## D\n") == {"a-b-cs", "d", "d-1"}


@pytest.fixture(scope="module")
def tree() -> list[str]:
    """Every file of the repository, with a slash in front of its path."""
    return [f"/{path.relative_to(ROOT)}" for path in ours() if path.is_file()]


@pytest.mark.slow
@pytest.mark.parametrize("page", FILES, ids=IDS)
def test_files_named_in_the_prose_exist(page: Path, tree: list[str]) -> None:
    named = inline_code(page.read_text(encoding="utf-8"))
    paths = [
        word
        for word in named
        if re.fullmatch(r"(?:[a-z][\w.-]*/)*[\w.-]+\.py|(?:[a-z][\w.-]*/)+[\w.-]+\.md", word)
    ]
    assert not [word for word in paths if not any(file.endswith(f"/{word}") for file in tree)]


def commands(line: str) -> list[list[str]]:
    """The programs that a line of a shell starts, with their arguments."""
    try:
        words = shlex.split(line.removeprefix("$ "), comments=True)
    except ValueError:  # a quote that goes on in the next line
        words = line.split()
    found: list[list[str]] = [[]]
    for word in words:
        if word in ("&&", "||", "|", ";", "&"):
            found.append([])
        elif found[-1] or not re.fullmatch(r"[A-Z_]+=.*|sudo|nice", word):
            found[-1].append(word)
    return [command for command in found if command]


def unknown_part(arguments: list[str]) -> str:
    """The first subcommand or flag of `specnav arguments…` that does not exist; empty if all do."""
    command: click.Command = SPECNAV
    rest = [word.rstrip(",.;:") for word in arguments]
    while hasattr(command, "commands"):
        if not rest or rest[0] in PLACEHOLDERS or not re.match(r"[a-z]", rest[0]):
            break
        if rest[0] not in command.commands:
            return rest[0]
        command = command.commands[rest.pop(0)]
    known = {"--help"}
    for parameter in command.params:
        known |= {*parameter.opts, *parameter.secondary_opts}
    flags = [word.partition("=")[0] for word in rest if word.startswith("-") and word.strip("-")]
    return next((flag for flag in flags if flag not in known), "")


@pytest.mark.parametrize("page", FILES, ids=IDS)
def test_commands_of_a_page_exist_with_their_flags(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M))
    lines = [*shell_lines(text), *inline_code(text)]
    for name, *arguments in (command for line in lines for command in commands(line)):
        if name == "specnav":
            assert not unknown_part(arguments), f"specnav {' '.join(arguments)}"
        elif name == "make" and arguments and re.fullmatch(r"[a-z-]+", arguments[0]):
            assert arguments[0] in targets, f"make {arguments[0]}"
        elif name.endswith("python") and arguments[:1] == ["-m"]:
            assert arguments[1] in ("colcon", "pytest") or find_spec(arguments[1]), (
                f"python -m {arguments[1]}"
            )


def test_commands_and_flags_that_do_not_exist_are_noticed() -> None:
    assert unknown_part(["walk"]) == "walk"
    assert unknown_part(["bench", "--speed", "3"]) == "--speed"
    assert unknown_part(["train", "cats"]) == "cats"
    assert not unknown_part(["train", "vlm", "--minutes=30"]) and not unknown_part(["COMMAND", "--help"])
    assert commands("A=1 specnav demo --rtt 40 && make docs  # both") == [
        ["specnav", "demo", "--rtt", "40"],
        ["make", "docs"],
    ]
