"""Fixtures of tests that start the robot's processes: the models to run with, children that come up quickly."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from specnav.paths import ROOT
from tests.graph.forking import forked_children


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """A failure shows what the processes of its graph have said."""
    report = yield
    # Without ROS there is no such module, and no graph.
    opened = getattr(sys.modules.get("specnav.supervise.robot_graph"), "OPEN", [])
    if report.failed:
        report.sections += [(f"processes of domain {graph.domain}", graph.told()) for graph in opened]
    return report


@pytest.fixture(scope="session")
def pair(request):
    from specnav.supervise.robot_stack import TrialPair

    given = request.config.getoption("--pair", default=None)
    for folder in [Path(given)] if given else [ROOT / "default_models", ROOT / "runs" / "rough_pair"]:
        if (folder / "nav-target" / "config.json").is_file() and (
            folder / "nav-draft" / "config.json"
        ).is_file():
            return TrialPair(
                folder / "nav-target", folder / "nav-draft", trained=folder.name == "default_models"
            )
    pytest.skip("no pair of models here: default_models/ is missing")


@pytest.fixture(scope="module")
def quickly_started():
    """Children of this module's tests are forked from one parent that has imported everything."""
    with forked_children():
        yield
