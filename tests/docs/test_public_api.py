"""docs/public_api.md and docs/reference.md name what is there, and the versions that the code has."""

from __future__ import annotations

import re
from importlib import import_module

import pytest

from specdec.link.wire import PROTOCOL_VERSION
from specnav.results.demo import SCHEMA
from tests.docs.pages import ROOT

API = (ROOT / "docs/public_api.md").read_text(encoding="utf-8")
ROWS = re.findall(r"^\| `((?:specdec|cloud_verifier)[\w.]*)` \| (`.*`) \|$", API, re.M)
NAMED = [(module, name) for module, names in ROWS for name in re.findall(r"`(\w+)`", names)]
REFERENCE = re.findall(r"^::: ([\w.]+)$", (ROOT / "docs/reference.md").read_text(encoding="utf-8"), re.M)


def test_the_tables_are_read() -> None:
    assert len(ROWS) >= 10 and ("specdec.edge.decoder", "EdgeDecoder") in NAMED and len(REFERENCE) > 10


@pytest.mark.parametrize(("module", "name"), NAMED, ids=lambda part: part)
def test_every_name_of_the_public_api_can_be_imported(module: str, name: str) -> None:
    assert hasattr(import_module(module), name)


@pytest.mark.parametrize("path", REFERENCE)
def test_every_entry_of_the_reference_exists(path: str) -> None:
    module, _, name = path.rpartition(".")
    try:
        import_module(path)
    except ModuleNotFoundError:
        assert hasattr(import_module(module), name)


def test_the_versions_are_those_of_the_code() -> None:
    assert f"`PROTOCOL_VERSION`, now {PROTOCOL_VERSION} " in API
    assert f"`schema`, now {SCHEMA} " in API
    assert f"## Wire contract, version {PROTOCOL_VERSION}\n" in (ROOT / "docs/wire.md").read_text()
