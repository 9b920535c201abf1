"""The tables of settings on pages are those of the settings classes.

A change of a setting writes them anew: `UPDATE_GOLDEN=1 python -m pytest tests/docs/test_settings_tables.py`.
"""

from __future__ import annotations

import os
import re

from cloud_verifier.config import ServerConfig
from specdec.settings import settings_of
from tests.docs.pages import ROOT, settings_table

TABLE = re.compile(r"<!-- settings: (all but )?(\w+) -->\n(.*?)<!-- end -->", re.S)
PAGE = ROOT / "cloud_verifier" / "README.md"


def test_the_tables_of_the_verifiers_page_are_those_of_its_settings() -> None:
    listed: list[str] = []

    def made(match: re.Match[str]) -> str:
        others, start = match[1] or "", match[2]
        names = [name for name in settings_of(ServerConfig) if name.startswith(start) != bool(others)]
        listed.extend(names)
        return f"<!-- settings: {others}{start} -->\n{settings_table(ServerConfig, names)}<!-- end -->"

    text = PAGE.read_text(encoding="utf-8")
    wanted = TABLE.sub(made, text)
    if os.environ.get("UPDATE_GOLDEN"):
        PAGE.write_text(wanted, encoding="utf-8")
        text = wanted
    assert sorted(listed) == sorted(settings_of(ServerConfig))
    assert text == wanted, "meant? UPDATE_GOLDEN=1 python -m pytest tests/docs/test_settings_tables.py"
