"""The glossary names modules and classes that exist."""

from __future__ import annotations

import re

import pytest

from tests.docs.pages import ROOT, inline_code

PAGES = ("glossary.md", "references.md")
NAMED = sorted(
    {
        word
        for page in PAGES
        for word in inline_code((ROOT / "docs" / page).read_text(encoding="utf-8"))
        if re.fullmatch(r"(specdec|cloud_verifier|specnav|spec_vlm_nav)(\.\w+)+", word)
    }
)


def defined(path: str) -> bool:
    """Whether a dotted path is a package, a module, or a word in its parent module. Imports nothing."""
    root = ROOT / "ros2_ws/src/spec_vlm_nav" if path.startswith("spec_vlm_nav.") else ROOT
    place = root.joinpath(*path.split("."))
    if place.is_dir() or place.with_suffix(".py").is_file():
        return True
    parent = place.parent
    module = parent / "__init__.py" if parent.is_dir() else parent.with_suffix(".py")
    return (
        module.is_file() and re.search(rf"\b{place.name}\b", module.read_text(encoding="utf-8")) is not None
    )


def test_the_glossary_is_read() -> None:
    assert len(NAMED) > 40
    assert not defined("specdec.edge.nothing") and not defined("specdec.edge.session.Nothing")


@pytest.mark.parametrize("path", NAMED)
def test_every_module_and_class_of_the_glossary_exists(path: str) -> None:
    assert defined(path)
