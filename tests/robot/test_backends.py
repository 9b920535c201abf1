"""Motion back-ends: what the robot is sent for a velocity, within its limits, and how a stop is said."""

import json
import math

import pytest

from spec_vlm_nav.common.geometry import ZERO, Velocity
from spec_vlm_nav.motion.backends.velocity import (
    AVOID_MOVE,
    MOVE,
    OBSTACLES_AVOID,
    SPORT,
    STOP,
    STOP_MOVE,
    STOP_REPEATS,
    Go2Avoiding,
    Go2Sport,
    SportRequest,
    move,
)

WALK = Velocity(0.3, -0.2)


def parameter(request):
    assert request.api_id == MOVE
    return json.loads(request.parameter)


def test_a_velocity_is_a_move_with_forward_sideways_and_yaw_as_x_y_z():
    (request,) = Go2Sport().velocity(WALK)
    assert request == SportRequest(1008, '{"x":0.3,"y":0.0,"z":-0.2}')


@pytest.mark.parametrize(
    ("given", "sent"),
    [
        ((9.0, 9.0), {"x": 3.8, "y": 0.0, "z": 4.0}),
        ((-9.0, -9.0), {"x": -2.5, "y": 0.0, "z": -4.0}),
        ((-1e-9, 1 / 3), {"x": 0.0, "y": 0.0, "z": 0.333333}),
    ],
)
def test_the_robot_s_own_limits_are_the_last_word(given, sent):
    assert parameter(move(*given)) == sent
    assert "-0.0" not in move(*given).parameter


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("where", range(2))
def test_what_is_no_number_stands_still(bad, where):
    given = [0.5, 0.5]
    given[where] = bad
    assert parameter(move(*given)) == {"x": 0.0, "y": 0.0, "z": 0.0}
    assert Go2Sport().velocity(Velocity(bad, 0.1)) == STOP


def test_a_stop_is_move_0_0_0_and_stop_move():
    assert [r.api_id for r in STOP] == [MOVE, STOP_MOVE] == [1008, 1003]
    assert parameter(STOP[0]) == {"x": 0.0, "y": 0.0, "z": 0.0} and STOP[1].parameter == ""
    assert Go2Sport().stop() == STOP


def test_a_robot_that_never_moved_is_left_alone_until_a_stop_is_asked_for():
    encoder = Go2Sport()
    assert all(encoder.velocity(ZERO) == () for _ in range(50))
    assert encoder.stop() == STOP
    assert encoder.velocity(ZERO) == STOP


def test_after_a_motion_the_stop_is_repeated_and_then_the_remote_control_is_free():
    encoder = Go2Sport()
    for _ in range(3):
        assert len(encoder.velocity(WALK)) == 1
    sent = [encoder.velocity(ZERO) for _ in range(STOP_REPEATS + 20)]
    assert sent[:STOP_REPEATS] == [STOP] * STOP_REPEATS
    assert sent[STOP_REPEATS:] == [()] * 20


def test_a_motion_cuts_the_repeated_stops_short():
    encoder = Go2Sport()
    encoder.stop()
    assert encoder.velocity(WALK)[0].api_id == MOVE
    assert encoder.velocity(ZERO) == STOP


# -- through the Go2's own obstacle avoidance


def avoid(api_id, **parameter):
    return SportRequest(api_id, json.dumps(parameter, separators=(",", ":")), OBSTACLES_AVOID)


SWITCH_ON, LISTEN = avoid(1001, enable=True), avoid(1004, is_remote_commands_from_api=True)
RELEASE = avoid(1004, is_remote_commands_from_api=False)
AVOIDING_STOP = (avoid(1003, x=0.0, y=0.0, yaw=0.0, mode=0), *STOP)


def test_when_the_robot_is_found_its_avoidance_is_switched_on_and_left_to_the_remote_control():
    assert Go2Avoiding().begin() == (SWITCH_ON, RELEASE)
    assert Go2Sport().begin() == ()


def test_moves_go_through_the_avoidance_which_is_asked_first_to_listen():
    encoder = Go2Avoiding()
    walk = avoid(1003, x=0.3, y=0.0, yaw=-0.2, mode=0)
    assert encoder.velocity(WALK) == (SWITCH_ON, LISTEN, walk)
    assert encoder.velocity(WALK) == encoder.velocity(WALK) == (walk,)
    assert all(r.service == OBSTACLES_AVOID for r in encoder.velocity(Velocity(9.0, 9.0)))
    assert json.loads(encoder.velocity(Velocity(9.0, 9.0))[0].parameter) == {
        "x": 3.8,
        "y": 0.0,
        "yaw": 4.0,
        "mode": 0,
    }


def test_a_stop_is_said_to_both_services_as_often_as_without_avoidance_and_then_the_remote_control_is_free():
    encoder = Go2Avoiding()
    encoder.velocity(WALK)
    sent = [encoder.velocity(ZERO) for _ in range(STOP_REPEATS + 20)]
    assert sent[:STOP_REPEATS] == [AVOIDING_STOP] * STOP_REPEATS
    assert sent[STOP_REPEATS] == (RELEASE,)
    assert sent[STOP_REPEATS + 1 :] == [()] * 19
    assert encoder.velocity(WALK)[:2] == (SWITCH_ON, LISTEN)  # and taken again for the next motion


@pytest.mark.parametrize("encoder", [Go2Sport, Go2Avoiding])
@pytest.mark.parametrize("how", ["stop", "zero", "no number"])
def test_no_stop_lacks_what_stops_the_sport_service(encoder, how):
    moving = encoder()
    moving.velocity(WALK)
    said = {
        "stop": moving.stop,
        "zero": lambda: moving.velocity(ZERO),
        "no number": lambda: moving.velocity(Velocity(math.nan, 0.0)),
    }[how]()
    assert [r for r in said if r.service == SPORT] == list(STOP)
    assert all(json.loads(r.parameter)["x"] == 0 for r in said if r.api_id == AVOID_MOVE and r.parameter)


def test_a_robot_that_is_left_in_mid_motion_is_stopped_and_released():
    encoder = Go2Avoiding()
    encoder.velocity(WALK)
    assert encoder.stop() == AVOIDING_STOP
    assert encoder.release() == (RELEASE,) and encoder.release() == ()
    assert Go2Avoiding().stop() == AVOIDING_STOP and Go2Avoiding().release() == ()
