"""Tables in the documentation list what the code has, and the Python in the pages imports what exists."""

from __future__ import annotations

import ast
import re
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest
import typer

from specdec.methods import AXES, METHODS
from specnav.cli.app import app
from tests.docs.pages import ROOT, code_blocks, markdown_files

WITH_PYTHON = [page for page in markdown_files() if code_blocks(page.read_text(encoding="utf-8"), "python")]
ROOMS = (
    "cloud_verifier",
    "navsim",
    "spec_vlm_nav",
    "specdec",
    "specnav",
)


def first_column(section: str) -> set[str]:
    """The names between backticks that the rows of a table begin with."""
    return {
        name
        for cell in re.findall(r"^\| ([^|]*) \|", section, re.M)
        for name in re.findall(r"`([^`]+)`", cell)
    }


def test_the_page_of_axes_lists_every_method_and_every_axis() -> None:
    methods, axes = (ROOT / "docs/axes.md").read_text(encoding="utf-8").split("\n## Axes\n")
    assert first_column(methods) == set(METHODS)
    assert first_column(axes) == set(AXES)


@pytest.mark.slow
def test_the_page_of_commands_lists_every_command() -> None:
    listed = first_column((ROOT / "docs/commands.md").read_text(encoding="utf-8"))
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    assert {entry.split()[1] for entry in listed} == {name for name, one in commands.items() if not one.hidden}


def test_every_page_of_the_site_has_its_place_in_the_navigation() -> None:
    navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:\n")[2]
    pages = {str(page.relative_to(ROOT / "docs")) for page in (ROOT / "docs").rglob("*.md")}
    assert pages <= set(re.findall(r"[\w/]+\.md", navigation))


@pytest.mark.parametrize("page", WITH_PYTHON, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_python_of_a_page_imports_what_exists(page: Path) -> None:
    for block in code_blocks(page.read_text(encoding="utf-8"), "python"):
        for node in ast.walk(ast.parse(block)):
            if not isinstance(node, ast.ImportFrom) or (node.module or "").partition(".")[0] not in ROOMS:
                continue
            if "ros" in node.module.split(".") and find_spec("rclpy") is None:
                continue
            module = import_module(node.module)
            assert not [name.name for name in node.names if not hasattr(module, name.name)], node.module
