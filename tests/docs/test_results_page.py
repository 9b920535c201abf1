"""docs/results.md is made from stored results; its prose holds no number of its own."""

from __future__ import annotations

import importlib.util
import re
from types import ModuleType

import pytest

from tests.docs.pages import ROOT

PROSE_NUMBERS = {"0.8", "11", "2", "2.11", "40", "48", "50", "7"}
"""Settings and versions that the prose may name; results come from the generated blocks."""


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("results_page", ROOT / "scripts/results_page.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_and_the_chart_are_those_of_the_stored_results(tool: ModuleType) -> None:
    text = tool.PAGE.read_text(encoding="utf-8")
    assert tool.page(text) == text, "run python scripts/results_page.py"
    assert tool.CHART.read_text(encoding="utf-8") == tool.chart(), "run python scripts/results_page.py"


def test_a_number_that_was_changed_by_hand_is_noticed(tool: ModuleType) -> None:
    text = tool.PAGE.read_text(encoding="utf-8")
    changed = text.replace("97.3 %", "99.3 %", 1)
    assert changed != text and tool.page(changed) == text


def test_a_block_without_a_place_is_refused(tool: ModuleType) -> None:
    with pytest.raises(ValueError, match="must hold one block 'headline'"):
        tool.page("# Results\n")


def test_the_prose_holds_no_number_without_a_source(tool: ModuleType) -> None:
    text = re.sub(
        r"<!-- begin: .*?<!-- end: [\w ]+ -->", "", tool.PAGE.read_text(encoding="utf-8"), flags=re.S
    )
    text = re.sub(r"```.*?```|`[^`]*`|\]\([^)]*\)", "", text, flags=re.S)
    numbers = set(re.findall(r"(?<![\w.])\d[\d.,]*(?=\W|$)", re.sub(r"[.,](\s|$)", r"\1", text)))
    assert numbers <= PROSE_NUMBERS, sorted(numbers - PROSE_NUMBERS)
