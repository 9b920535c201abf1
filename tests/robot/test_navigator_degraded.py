"""The deciding side without its link, with early and prefetched decisions; simulated time."""

from __future__ import annotations

import io

import pytest
from PIL import Image

from spec_vlm_nav.camera.images import Frame
from spec_vlm_nav.common.codes import ErrorCode, MotionState, Verification
from spec_vlm_nav.common.geometry import Motion
from spec_vlm_nav.common.status import Status
from spec_vlm_nav.deciding.parts.interfaces import NavigatorPhase
from spec_vlm_nav.exploring.policy import ExplorationPolicy
from spec_vlm_nav.motion.command import CommandKind
from tests.robot.navigator_world import (
    FORWARD,
    LOST,
    STOP,
    TURN,
    UP,
    World,
    codes,
    degraded,
    link,
    reconcile,
    unverified,
)

# -- the link


def test_a_link_lost_while_a_verified_motion_runs_ends_it_and_nothing_is_decided_until_it_is_back():
    world = World(on_link_loss="hold").instruct().answer(FORWARD).run(0.2)
    link(world, LOST).run(60)
    assert world.kinds[-1] is CommandKind.HOLD and len(world.jobs) == 1
    assert [level for level, text in world.logs if "the verifier is not heard" in text] == ["warn"]
    assert [r.code for r in world.reports if r.error] == [ErrorCode.LINK_LOST]
    link(world, UP).run(0.3)
    assert len(world.jobs) == 2 and world.outcomes == []


def test_with_stop_the_instruction_is_given_up_when_the_link_stays_away():
    world = World(on_link_loss="stop", patience_s=10.0).instruct().answer(FORWARD).run(0.2)
    link(world, LOST).run(9.5)
    assert world.outcomes == []
    world.run(1.0)
    assert codes(world) == [(1, "LINK_LOST")] and world.kinds[-1] is CommandKind.STOP
    link(world, UP).run(3)
    assert len(world.jobs) == 1


def test_a_link_that_flaps_does_not_use_up_the_patience():
    world = link(World(patience_s=5.0).instruct(), LOST)
    for _ in range(5):
        link(link(world.run(3), UP).run(0.1), LOST)
    assert world.outcomes == []


# -- the draft model alone


def test_the_draft_models_action_moves_the_robot_and_is_marked_everywhere():
    world = unverified(degraded(), FORWARD)
    assert world.requests[-1].kind is CommandKind.MOVE and world.requests[-1].unverified
    assert world.requests[-1].deadline_s == 2 * world.navigator.config.motion_deadline_s
    assert (
        world.said[-1].startswith("[unverified] ")
        and world.reports[-1].verification is Verification.UNVERIFIED
    )
    assert any("UNVERIFIED" in text for level, text in world.logs if level == "warn")
    assert world.navigator.told.unverified
    link(world, LOST).run(1)
    assert world.requests[-1].kind is CommandKind.MOVE  # the link that is lost does not end it


def test_the_same_action_of_the_target_confirms_and_the_motion_goes_on():
    world = reconcile(unverified(degraded(), FORWARD), FORWARD)
    assert world.kinds[-1] is CommandKind.MOVE and world.navigator.phase is NavigatorPhase.MOVING
    assert world.reports[-1].verification is Verification.CONFIRMED
    assert (
        world.reports[-1].sequence == world.reports[-2].sequence and world.reports[-1].answer.text == FORWARD
    )
    link(link(world, UP), LOST)
    assert world.kinds[-1] is CommandKind.HOLD  # verified now: it depends on the link again


def test_another_action_of_the_target_ends_the_motion_and_leaves_no_trace_of_it():
    world = reconcile(unverified(degraded(), FORWARD), TURN)
    assert world.kinds[-1] is CommandKind.HOLD and world.requests[-1].text == "rolled back"
    assert world.reports[-1].verification is Verification.ROLLED_BACK
    link(world, UP).run(0.4)
    assert world.jobs[-1].last_actions == () and world.jobs[-1].past == () and len(world.jobs) == 2


def test_a_late_word_on_an_older_decision_changes_nothing():
    world = unverified(degraded(), FORWARD)
    first = world.jobs[-1]
    world.ended().run(0.3)
    unverified(world, TURN)
    requests, reports = len(world.requests), len(world.reports)
    reconcile(world, TURN, first)
    assert (len(world.requests), len(world.reports)) == (requests, reports)
    reconcile(world, FORWARD)
    assert world.reports[-1].verification is Verification.ROLLED_BACK


def test_a_refuted_decision_is_taken_back_with_what_was_decided_after_it():
    world = unverified(degraded().answer(FORWARD).ended().run(0.3), FORWARD)
    first = world.jobs[-1]
    link(world.ended(), UP).run(0.3).answer(TURN)  # verified, before the word on the older one
    reconcile(world, TURN, first).run(0.4)
    assert [r.verification for r in world.reports[-2:]] == [Verification.VERIFIED, Verification.ROLLED_BACK]
    assert world.kinds[-1] is CommandKind.HOLD and len(world.jobs) == 4
    assert len(world.jobs[-1].last_actions) == 1 and world.jobs[-1].past == (b"jpeg 1",)


def test_the_draft_models_stop_stands_still_but_only_the_target_ends_the_instruction():
    world = unverified(degraded(), STOP).run(5)
    assert world.kinds[-1] is CommandKind.HOLD and world.outcomes == [] and len(world.jobs) == 1
    reconcile(link(world, UP), STOP)
    assert codes(world) == [(1, "NONE")] and world.kinds[-1] is CommandKind.STOP


def test_a_stop_that_the_target_does_not_confirm_is_taken_back():
    world = unverified(degraded(), STOP)
    reconcile(link(world, UP), FORWARD).run(0.3)
    assert world.outcomes == [] and len(world.jobs) == 2


def test_a_stop_that_nobody_confirms_is_given_up_in_the_end():
    world = unverified(degraded(), STOP).run(31)
    assert codes(world) == [(1, "LINK_LOST")]


def test_a_rollback_leaves_the_memory_of_a_policy_that_came_in_between_alone():
    world = World("frontier_search", on_link_loss="draft_only_slow")
    unverified(link(world.instruct(), LOST), TURN)
    world.navigator.policy = other = ExplorationPolicy("frontier_search")
    before = other.state
    assert reconcile(world, FORWARD).navigator.policy.state is before


def test_a_rollback_also_takes_back_what_the_exploration_policy_remembers():
    world = World("frontier_search", on_link_loss="draft_only_slow")
    before = link(world.instruct(), LOST).navigator.policy.state
    assert unverified(world, TURN).navigator.policy.state != before
    assert reconcile(world, FORWARD).navigator.policy.state == before


# -- early action and prefetch


def test_without_early_action_the_robot_waits_for_the_whole_answer():
    world = World(early_action=False).instruct().find(FORWARD)
    assert CommandKind.MOVE not in world.kinds
    world.answer(FORWARD)
    assert world.kinds[-1] is CommandKind.MOVE


def test_reasoning_that_comes_behind_the_action_is_published_when_it_is_there():
    action, reasoning = "The next action is move forward 75 cm.", "I see the red chair, ahead."
    world = World().instruct().find(action)
    assert world.said == [""] and world.kinds[-1] is CommandKind.MOVE
    world.answer(f"{action} {reasoning}")
    assert world.said == ["", reasoning] and world.navigator.told.reasoning == reasoning


def picture(level, size=(224, 140)):
    out = io.BytesIO()
    Image.new("RGB", size, (level, level, level)).save(out, "JPEG")
    return out.getvalue()


class Seeing(World):
    """Frames are pictures of one grey level that the test chooses."""

    level = 100

    def run(self, seconds):
        for _ in range(max(1, round(seconds / 0.05))):
            self.now += 0.05
            if round(self.now * 20) % 2 == 0:
                stamp = (int(self.now), int(self.now % 1 * 1e9))
                self.navigator.on_frame(Frame(picture(self.level), stamp, self.now))
            self.mover_tells()
            self.navigator.tick(self.now)
        return self

    def settling(self):
        return self.ended(MotionState.SETTLING)


def moving(**config):
    return Seeing(prefetch=True, **config).instruct().answer(FORWARD).run(0.5)


def test_the_next_decision_is_begun_while_the_motion_settles_and_used_when_the_scene_is_the_same():
    world = moving().settling().run(0.2)
    assert len(world.jobs) == 2 and world.jobs[1].last_actions != ()
    world.find(TURN)
    assert len(world.requests) == 2  # HOLD of the instruction, the first MOVE: nothing moves before the end
    world.ended().run(0.2)
    assert world.kinds[-1] is CommandKind.MOVE and world.requests[-1].frame is world.jobs[1].frame
    world.answer(TURN)
    assert world.reports[-1].prefetched and world.reports[-1].answer.text == TURN


def test_a_prefetched_decision_that_is_not_ready_yet_acts_when_it_is():
    world = moving().settling().run(0.2).ended().run(0.2)
    assert world.navigator.phase is NavigatorPhase.THINKING and len(world.jobs) == 2
    world.answer(TURN)
    assert world.kinds[-1] is CommandKind.MOVE


def test_a_prefetched_decision_is_dropped_when_the_scene_has_changed():
    world = moving().settling().run(0.2).find(TURN)
    world.level = 160
    world.ended().run(0.2)
    assert len(world.jobs) == 3 and world.kept_open == 1 and world.kinds[-1] is CommandKind.MOVE
    assert len([k for k in world.kinds if k is CommandKind.MOVE]) == 1
    assert [r.error for r in world.reports if r.code is ErrorCode.CANCELED] == ["the scene has changed"]
    assert world.navigator.told.decisions == 2  # the dropped one is none
    world.answer(FORWARD)
    assert world.requests[-1].frame is world.jobs[2].frame and not world.reports[-1].prefetched


@pytest.mark.parametrize("state", [MotionState.BLOCKED, MotionState.STALE_ODOM, MotionState.COLLISION_AHEAD])
def test_a_prefetched_decision_is_dropped_when_the_motion_does_not_reach_its_end(state):
    world = moving().settling().run(0.2).find(TURN).ended(state).run(0.7)
    assert len([k for k in world.kinds if k is CommandKind.MOVE]) == 1 and len(world.jobs) == 3


def test_a_prefetched_decision_that_fails_leaves_the_motion_alone():
    world = moving().settling().run(0.2).fail(ErrorCode.INTERNAL)
    assert world.kinds[-1] is CommandKind.MOVE
    world.ended().run(0.3)
    assert len(world.jobs) == 3


def test_stop_while_a_decision_is_prefetched_stops_and_forgets_it():
    world = moving().settling().run(0.2)
    world.navigator.on_cancel(world.now)
    world.find(TURN).run(1)
    assert world.kinds[-1] is CommandKind.STOP and len(world.jobs) == 2


# -- the camera


def test_a_frame_with_the_stamp_of_the_one_before_is_none():
    world = World().instruct().answer(FORWARD).run(0.5)
    stale = world.navigator.camera.frame
    world.camera = False
    for _ in range(30):
        world.now += 0.05
        world.navigator.on_frame(Frame(b"other", stale.stamp, world.now))
        world.navigator.tick(world.now)
    assert world.kinds[-1] is CommandKind.HOLD and world.reports[-1].code is ErrorCode.STALE_CAMERA


def test_a_picture_that_stays_the_same_while_the_robot_moves_is_none():
    world = World().instruct().answer(FORWARD)  # World's pictures are all the same bytes
    world.mover = False  # the test tells
    sequence = len(world.requests)
    for done in (0.03, 0.06, 0.09, 0.12, 0.15):
        world.run(0.1)
        moving = Status(MotionState.MOVING, 1, sequence, "", Motion(done), Motion(0.75 - done))
        world.navigator.on_status(moving, world.now)
    world.run(0.1)
    assert world.kinds[-1] is CommandKind.HOLD
    assert any("does not change although the robot moves" in text for _, text in world.logs)


def test_noise_of_odometry_is_no_movement_of_a_robot_that_stands():
    world = World().instruct()
    world.lively = True
    world.answer(FORWARD).run(0.5).ended(done=Motion(0.7500)).run(0.3).answer(TURN)
    world.mover = world.lively = False  # the robot turns, and then stands before one picture
    sequence = len(world.requests)
    for i in range(60):
        world.run(0.1)
        noisy = Motion(0.0004 * (i % 3 - 1), 0.5 + 0.0003 * (i % 2))
        world.navigator.on_status(Status(MotionState.SETTLING, 1, sequence, "", noisy), world.now)
        if i == 0:
            world.lively = True
            world.run(0.1)
            world.lively = False
    assert not world.navigator.camera.is_frozen


def test_a_picture_that_stays_the_same_while_the_robot_stands_is_fine():
    world = World().instruct().run(5)
    assert not world.navigator.camera.is_frozen and len(world.jobs) == 1
