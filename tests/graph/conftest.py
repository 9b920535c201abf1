"""Fixtures of the whole-graph tests: the running stack of real processes."""

from __future__ import annotations

import pytest

from specnav.supervise.processes import Supervisor
from tests.graph.stack import Stack
from tests.helpers.graph import pair, pytest_runtest_makereport, quickly_started  # noqa: F401

AFRESH = staticmethod(Supervisor.launch)


def pytest_addoption(parser):
    parser.addoption("--pair", help="folder with nav-target and nav-draft (default: default_models)")


@pytest.fixture(scope="module", autouse=True)
def _all_quickly_started(quickly_started):  # noqa: F811
    """Every module here."""


@pytest.fixture
def afresh(monkeypatch):
    """For a test of how processes start and end: its own come up as a user's do.

    (A forked simulator draws well, and may end badly: what the renderer tears down it has from its parent.)
    """
    monkeypatch.setattr(Supervisor, "launch", AFRESH)


@pytest.fixture(scope="module")
def running(pair, tmp_path_factory):  # noqa: F811
    """The stack of a module; tests that kill something start it again through `stack`."""
    # Slow, so that there is time to break things.
    slow = {"max_linear": 0.25}
    with Stack(tmp_path_factory.mktemp("stack"), pair, slow, {"motion_deadline_s": 3.0}) as stack:
        yield stack


@pytest.fixture
def stack(running):
    """The stack, all processes up, the robot standing in a fresh room without an instruction."""
    running.make_ready()
    return running
