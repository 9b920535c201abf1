"""Every fault of `specnav drill` once, on one running stack: it stands in time, says why, hangs nowhere and goes on."""

from __future__ import annotations

import pytest

from specnav.drill.catalogue import all_drills
from specnav.drill.config import SPEEDS
from specnav.drill.injector import FaultInjector
from specnav.supervise.robot_stack import Stack

pytestmark = pytest.mark.graph
DRILLS = [drill for drill in all_drills() if drill.tested]


@pytest.fixture(scope="module")
def conductor(quickly_started, pair, tmp_path_factory):
    with Stack(tmp_path_factory.mktemp("drill"), pair, SPEEDS) as stack:
        yield FaultInjector(stack)


@pytest.mark.parametrize("drill", DRILLS, ids=[drill.name for drill in DRILLS])
def test_fault(conductor, drill):
    run = conductor.run(drill, 0)
    bound_ms = conductor.bound_s(drill.bound) * 1e3
    assert run.passed, f"{drill.what}: {run.problems}, bound {bound_ms:.0f} ms, {run}"
