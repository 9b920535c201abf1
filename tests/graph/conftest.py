"""Fixtures of the whole-graph tests: the pair of models to run with, and the running stack of real processes."""

from __future__ import annotations

from pathlib import Path

import pytest

from specnav.supervise.processes import Supervisor
from tests.graph.forking import forked_children
from tests.graph.harness import ROOT
from tests.graph.stack import Pair, Stack
from trials.graph.graph import OPEN

AFRESH = staticmethod(Supervisor.launch)


def pytest_addoption(parser):
    parser.addoption("--pair", help="folder with nav-target and nav-draft (default: default_models)")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """A failure shows what the processes of its graph have said."""
    report = yield
    if report.failed:
        report.sections += [(f"processes of domain {graph.domain}", graph.told()) for graph in OPEN]
    return report


@pytest.fixture(scope="session")
def pair(request):
    given = request.config.getoption("--pair", default=None)
    for folder in [Path(given)] if given else [ROOT / "default_models", ROOT / "runs" / "rough_pair"]:
        if (folder / "nav-target" / "config.json").is_file() and (
            folder / "nav-draft" / "config.json"
        ).is_file():
            return Pair(folder / "nav-target", folder / "nav-draft", trained=folder.name == "default_models")
    pytest.skip("no pair of models here: default_models/ is missing")


@pytest.fixture(scope="module", autouse=True)
def quickly_started():
    """Children of this module's tests are forked from one parent that has imported everything."""
    with forked_children():
        yield


@pytest.fixture
def afresh(monkeypatch):
    """For a test of how processes start and end: its own come up as a user's do.

    (A forked simulator draws well, and may end badly: what the renderer tears down it has from its parent.)
    """
    monkeypatch.setattr(Supervisor, "launch", AFRESH)


@pytest.fixture(scope="module")
def running(pair, tmp_path_factory):
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
