"""`on_link_loss: draft_only_slow` on the whole graph: slow and marked while the link is cut, then verified."""

from __future__ import annotations

import time

import pytest
from spec_vlm_nav_interfaces.msg import DecisionMetrics, MotionCommand

from specnav.supervise.robot_stack import CMD_VEL, COMMAND, METRICS, STATUS, Stack, speed
from tests.graph.harness import wait_until

pytestmark = pytest.mark.graph
CUT_S = 3.0


def test_without_a_verifier_the_draft_moves_the_robot_slowly_and_the_target_has_the_last_word(pair, tmp_path):
    with Stack(tmp_path, pair, deciding={"on_link_loss": "draft_only_slow"}) as stack:
        stack.make_ready()
        stack.wait_until_moving(stack.instruct(stack.instruction))
        stack.link.shut()
        cut = time.monotonic()
        wait_until(
            lambda: any(h.message.unverified for h in stack.commands(cut, MotionCommand.MOVE)),
            10,
            "an unverified motion",
            lambda: stack.decider.text,
        )
        first = next(h.at for h in stack.commands(cut, MotionCommand.MOVE) if h.message.unverified)
        time.sleep(CUT_S)
        restored = time.monotonic()
        stack.link.open()
        moved = [h for h in stack.probe.heard(CMD_VEL, first + 0.3) if h.at < restored]
        assert any(speed(h) > 0 for h in moved)
        assert max(abs(h.message.linear.x) for h in moved) <= 0.15 + 1e-6
        assert max(abs(h.message.angular.z) for h in moved) <= 0.4 + 1e-6
        assert all(h.message.unverified for h in stack.commands(first, MotionCommand.MOVE) if h.at < restored)
        assert any(h.message.unverified for h in stack.probe.heard(STATUS, first))
        assert "UNVERIFIED, the draft model alone" in stack.decider.text
        verdicts = {DecisionMetrics.CONFIRMED, DecisionMetrics.ROLLED_BACK}
        wait_until(
            lambda: any(h.message.verification in verdicts for h in stack.probe.heard(METRICS, restored)),
            5,
            "the target's word",
            lambda: stack.decider.text,
        )
        wait_until(
            lambda: any(not h.message.unverified for h in stack.commands(restored, MotionCommand.MOVE)),
            15,
            "a verified motion",
            lambda: stack.decider.text,
        )
        later = stack.probe.heard(COMMAND, restored + 8)
        assert not any(h.message.unverified for h in later)
