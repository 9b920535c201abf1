"""Makes the core's fixtures known here: a tiny pair, and a verifier in this process."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from conftest_servers import model_root, start_server, text_pair  # noqa: F401


@pytest.fixture
def quickly_started():
    """What a run in this process starts is forked; runs that are processes of their own start all they need afresh."""
    from tests.graph.forking import forked_children

    with forked_children():
        yield
