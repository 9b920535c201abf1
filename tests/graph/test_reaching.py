"""The whole graph, real processes: from an instruction to a stop at the right thing."""

from __future__ import annotations

import json
import time

import pytest
from spec_vlm_nav_interfaces.msg import DecisionMetrics, MotionCommand

from navsim.base import Pose2D
from navsim.episodes import make_episode
from navsim.scoring import score_episode
from tests.graph.harness import wait_until
from tests.graph.stack import STATE, Stack, last_motion

pytestmark = pytest.mark.graph


def test_an_instruction_makes_the_robot_move_reach_its_target_and_stop(pair, tmp_path):
    if not pair.trained:
        pytest.skip("needs the trained default models")
    with Stack(tmp_path, pair) as stack:
        stack.make_ready()
        outcomes = []
        for _ in range(4):
            stack.cancel()
            episode = make_episode(stack.reset("heldout"), "heldout")
            began = stack.instruct(episode.instruction)
            wait_until(
                lambda began=began: (
                    stack.commands(began, MotionCommand.STOP) or len(stack.decisions(began)) >= 40
                ),
                120,
                "STOP",
                lambda: stack.decider.text,
            )
            said_stop = any(
                c.message.source == MotionCommand.MODEL for c in stack.commands(began, MotionCommand.STOP)
            )
            time.sleep(1.0)
            state = json.loads(stack.probe.heard(STATE)[-1].message.data)
            score = score_episode(
                episode,
                Pose2D(state["x"], state["y"], state["yaw"]),
                stopped=said_stop,
                path_m=state["travelled"],
                collisions=state["collisions"],
            )
            outcomes.append(score)
            assert last_motion(stack, began) > 0.5
            if score.success:
                break
        assert any(score.success for score in outcomes), outcomes
        # STOP latches: nothing moves although nothing says anything more.
        quiet = time.monotonic()
        time.sleep(2.0)
        assert last_motion(stack, quiet) == 0 and stack.decisions(quiet) == []
        decided = stack.decisions(began)
        assert all(m.error_code == DecisionMetrics.NONE and m.method == "fsd" for m in decided)
        assert all(sum(m.accepted) <= sum(m.drafted) and len(m.token_ids) == m.tokens for m in decided)
