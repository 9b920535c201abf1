"""Fixtures and options of the long tests: `python -m pytest tests/system -m soak --minutes 30`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.helpers.graph import pair, pytest_runtest_makereport, quickly_started  # noqa: F401


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--minutes", type=float, help="of a soak (default: 30), or simulated ones of the monkey (60)")
    parser.addoption("--seed", type=int, default=0, help="the first seed of the monkey, the seed of the others")
    parser.addoption("--case", type=Path, help="a case of the monkey to run instead")
    parser.addoption("--rtts", default="0,40,120", help="emulated round trips of the pipeline, ms")
    parser.addoption("--verify-ms", type=float, default=0.0, help="pacing of the pipeline's target (0: none)")
    parser.addoption("--decisions", type=int, default=20, help="of each of the pipeline's figures")
    parser.addoption("--out", type=Path, help="folder of the results (default: one of pytest's)")


@pytest.fixture
def given(request: pytest.FixtureRequest):
    """given(name, default): an option; its default where pytest was started elsewhere and does not know it."""
    return lambda name, default=None: request.config.getoption(f"--{name}", default) or default


@pytest.fixture
def folder(given, tmp_path: Path) -> Path:
    """Where results are left."""
    return given("out", tmp_path)
