"""The simulated robot at work for a long time: nothing grows. `pytest tests/system -m soak --minutes 30`."""

from __future__ import annotations

import pytest

from specnav.drill.journal import DrillJournal
from specnav.supervise.robot_stack import Stack
from tests.system.soak import soak


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_nothing_grows(pair, folder, given):
    journal = DrillJournal(folder, {"minutes": given("minutes", 30.0), "seed": given("seed", 0)})
    (folder / "logs").mkdir(parents=True, exist_ok=True)
    with Stack(folder / "logs", pair) as stack:
        stack.seed = 1000 * (given("seed", 0) + 1)
        stack.start_what_is_down()
        try:
            soak(stack, given("minutes", 30.0) * 60, journal, print)
        finally:
            print(f"report: {journal.report()}")
    rows = [row for leak in journal.leaks for row in leak.rows]
    assert rows and all(row.flat for row in rows), [row for row in rows if not row.flat]
