"""The whole graph, real processes: SIGINT and SIGTERM while the robot moves."""

from __future__ import annotations

import itertools
import signal
import time

import pytest

from specnav.supervise.surroundings import segments_of
from tests.graph.harness import children_of, left_in_memory, wait_until
from tests.graph.stack import Stack, last_motion, speed

pytestmark = [pytest.mark.graph, pytest.mark.usefixtures("afresh")]
INSTRUCTION = "find the red chair"


def test_signals_end_everything_with_zero_twist_exit_0_and_nothing_left(pair, tmp_path):
    """Half of the processes by SIGINT, half by SIGTERM: each program's own tests send it both."""
    with Stack(tmp_path, pair) as stack:
        stack.make_ready()
        began = stack.instruct(INSTRUCTION)
        stack.wait_until_moving(began)
        segments = segments_of([p.popen.pid for p in stack.processes])
        ended = time.monotonic()
        for process, number in zip(stack.processes, itertools.cycle((signal.SIGTERM, signal.SIGINT)), strict=False):
            process.popen.send_signal(number)
        for process in stack.processes:
            wait_until(
                lambda process=process: process.popen.poll() is not None,
                30,
                f"the end of {process.name}",
                lambda process=process: process.text,
            )
            assert process.popen.returncode == 0, f"{process.name}: {process.text[-2000:]}"
            assert "Traceback" not in process.text
            assert list(children_of(process.popen.pid)) == []
        time.sleep(0.2)
        assert last_motion(stack, ended) < 0.3
        assert speed(stack.probe.heard("cmd_vel")[-1]) == 0
        assert not left_in_memory(segments)
