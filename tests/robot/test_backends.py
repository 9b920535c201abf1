"""Motion back-ends: what the robot is sent for a velocity, within its limits, and how a stop is said."""

import json
import math

import pytest

from spec_vlm_nav.backends import MOVE, STOP, STOP_MOVE, STOP_REPEATS, Go2Sport, SportRequest, move
from spec_vlm_nav.executor import ZERO, Velocity

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
        ((9.0, 9.0, 9.0), {"x": 3.8, "y": 1.0, "z": 4.0}),
        ((-9.0, -9.0, -9.0), {"x": -2.5, "y": -1.0, "z": -4.0}),
        ((1e-9, -1e-9, 1 / 3), {"x": 0.0, "y": 0.0, "z": 0.333333}),
    ],
)
def test_the_robot_s_own_limits_are_the_last_word(given, sent):
    assert parameter(move(*given)) == sent
    assert "-0.0" not in move(*given).parameter


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("where", range(3))
def test_what_is_no_number_stands_still(bad, where):
    given = [0.5, 0.5, 0.5]
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
