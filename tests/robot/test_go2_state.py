"""What a Go2 reports itself: which states take motions, in words why not, and where it is. Simulated time."""

import math
from dataclasses import replace
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spec_vlm_nav.common.errors import ParameterError
from spec_vlm_nav.robot.go2_state import (
    CODES,
    MODES,
    Go2Config,
    Go2Watch,
    SportState,
    numbers_of,
    pose_of,
    sport_state_of,
)
from spec_vlm_nav.robot.parameters import GO2_STATE, check_go2, go2_config

STANDING = SportState(mode=1)
CONFIG = Go2Config()


def watch(state=STANDING, battery=80, config=CONFIG):
    heard = Go2Watch(config)
    if battery is not None:
        heard.hear_battery(battery, 0.0)
    if state is not None:
        heard.hear_sport(state, 0.0)
    return heard


def tilted(roll=0.0, pitch=0.0):
    return replace(STANDING, rpy=(math.radians(roll), math.radians(pitch), 2.0))


def test_a_go2_that_stands_and_has_charge_is_ready_and_says_what_it_does():
    judged = watch().judge(0.1)
    assert (judged.ready, judged.kind, judged.reason) == (True, "", "")
    assert judged.doing == "stands balanced (mode 1)" and judged.battery == pytest.approx(0.8)


@pytest.mark.parametrize("mode", range(16))
def test_only_idle_balanced_and_walking_take_motions_in_older_firmware(mode):
    judged = watch(replace(STANDING, mode=mode)).judge(0.1)
    assert judged.ready == (mode in (0, 1, 3))
    assert judged.ready or f"(mode {mode})" in judged.reason


@pytest.mark.parametrize("code", [*CODES, 4711])
@pytest.mark.parametrize("mode", [1, 5, 7])
def test_in_newer_firmware_the_error_code_is_the_state_and_the_mode_means_nothing(code, mode):
    judged = watch(replace(STANDING, mode=mode, error_code=code)).judge(0.1)
    assert judged.ready == (code in (100, 1005, 1013, 1015, 1016, 1017, 2007, 2010))
    assert f"(error_code {code})" in (judged.reason or judged.doing)


@pytest.mark.parametrize(
    ("state", "said"),
    [
        (SportState(mode=5), "the Go2 lies down (mode 5): stand it up and let it balance"),
        (SportState(mode=7), "the Go2 is limp (damping) (mode 7): stand it up"),
        (SportState(mode=6), "the Go2 stands with locked joints (mode 6): unlock them (BalanceStand)"),
        (SportState(mode=10), "the Go2 sits (mode 10): let it rise"),
        (SportState(mode=99), "the Go2 does something unknown (mode 99): that is not one of ready_modes"),
        (SportState(error_code=1004), "the Go2 lies or crouches (error_code 1004): stand it up"),
        (
            SportState(error_code=9),
            "the Go2 does something unknown (error_code 9): that is not one of ready_codes",
        ),
        (SportState(mode=1, body_height=0.08), "its body is at 0.08 m, at least 0.16 m are needed"),
        (tilted(roll=-95), "has fallen or hangs: roll -95, pitch 0 degrees, the limit is 34"),
        (tilted(pitch=40), "pitch 40 degrees"),
        (replace(STANDING, rpy=(math.nan, 0.0, 0.0)), "NaN"),
        (replace(STANDING, body_height=math.inf), "NaN"),
    ],
)
def test_each_reason_is_one_line_in_plain_words(state, said):
    judged = watch(state).judge(0.1)
    assert not judged.ready and said in judged.reason and "\n" not in judged.reason


def test_a_fall_is_told_before_what_the_robot_believes_to_be_doing():
    assert "fallen" in watch(replace(tilted(roll=120), mode=7)).judge(0.1).reason


@given(
    mode=st.integers(0, 255),
    error_code=st.integers(0, 2**32 - 1),
    rpy=st.tuples(*[st.floats(width=32)] * 3),
    body_height=st.floats(width=32),
    battery=st.integers(0, 255),
)
@pytest.mark.slow
def test_whatever_it_tells_it_is_ready_only_upright_high_charged_and_in_a_known_state(
    mode, error_code, rpy, body_height, battery
):
    judged = watch(SportState(mode, error_code, rpy, body_height), battery).judge(0.1)
    assert judged.ready == (not judged.reason)
    if judged.ready:
        assert max(abs(rpy[0]), abs(rpy[1])) <= CONFIG.max_tilt_rad and math.isfinite(rpy[2])
        assert CONFIG.min_body_height_m <= body_height < math.inf and 15 <= battery <= 100
        assert (error_code or mode) in (CONFIG.ready_codes if error_code else CONFIG.ready_modes)


def test_a_slope_is_no_fall_and_near_the_limit_it_does_not_flicker():
    heard = watch(tilted(pitch=30))
    assert heard.judge(0.0).ready
    for degrees, ready in ((36, False), (33, False), (29, False), (26, True), (33, True)):
        heard.hear_sport(tilted(pitch=degrees), 0.0)
        assert heard.judge(0.0).ready == ready, degrees


def test_a_crouch_ends_when_the_body_is_clearly_up_again():
    heard = watch()
    for height, ready in ((0.15, False), (0.17, False), (0.19, True), (0.165, True)):
        heard.hear_sport(replace(STANDING, body_height=height), 0.0)
        assert heard.judge(0.0).ready == ready, height


def test_a_low_battery_is_not_ready_until_there_is_clearly_more():
    heard = watch()
    for percent, ready in ((16, True), (14, False), (16, False), (19, False), (20, True), (15, True)):
        heard.hear_battery(percent, 0.0)
        assert heard.judge(0.0).ready == ready, percent
    heard.hear_battery(3, 0.0)
    assert "battery of the Go2 is at 3 %, at least 15 % are needed" in heard.judge(0.0).reason


def test_with_a_high_limit_a_full_battery_is_enough():
    heard = watch(battery=50, config=replace(CONFIG, min_battery=0.98))
    heard.hear_battery(100, 0.0)
    assert heard.judge(0.0).ready


@pytest.mark.parametrize("battery", [None, 101, 255])
def test_a_battery_that_nobody_knows_is_not_ready_unless_it_is_not_watched(battery):
    judged = watch(battery=battery).judge(0.1)
    assert not judged.ready and "min_battery 0 does without" in judged.reason and math.isnan(judged.battery)
    assert watch(battery=battery, config=replace(CONFIG, min_battery=0.0)).judge(0.1).ready


def test_silence_is_not_ready_and_the_reason_says_of_whom():
    assert "nothing heard yet of the Go2" in watch(state=None).judge(0.0).reason
    heard = watch()
    assert heard.judge(0.5).ready
    assert "has not reported its state for 0.7 s" in heard.judge(0.7).reason
    heard.hear_sport(STANDING, 6.0)
    assert "not known" in heard.judge(6.0).reason  # lowstate has been silent for longer than 5 s
    heard.hear_battery(80, 6.0)
    assert heard.judge(6.1).ready
    patient = watch(config=replace(CONFIG, state_timeout_s=0.0, battery_timeout_s=0.0))
    assert patient.judge(3600.0).ready


def test_the_kind_of_a_reason_holds_no_number_so_that_a_change_can_be_told_from_a_new_figure():
    heard, kinds = watch(), set()
    for percent in (14, 13, 12):
        heard.hear_battery(percent, 0.0)
        kinds.add(heard.judge(0.0).kind)
    assert kinds == {"battery"}


# -- where it is


def message(quaternion=(0.8, 0.0, 0.0, 0.6), position=(1.0, 2.0, 0.3)):
    """Shaped like a SportModeState; Unitree's quaternions begin with w."""
    imu = SimpleNamespace(quaternion=quaternion, rpy=(0.01, -0.02, 1.287))
    return SimpleNamespace(imu_state=imu, position=position, mode=3, error_code=100, body_height=0.31)


def test_a_message_becomes_a_state_with_the_quaternion_in_ros_s_order():
    state = sport_state_of(message())
    assert state.quaternion == (0.0, 0.0, 0.6, 0.8) and state.position == (1.0, 2.0, 0.3)
    assert (state.mode, state.error_code, state.body_height) == (3, 100, 0.31)
    assert state.rpy == (0.01, -0.02, 1.287) and state.doing == "walks freely (error_code 100)"
    _, _, z, w = pose_of(state).quaternion
    assert 2 * math.atan2(z, w) == pytest.approx(1.287, abs=1e-3)  # the yaw that its rpy says


@pytest.mark.slow
@given(scale=st.floats(0.91, 1.09), yaw=st.floats(-3.1, 3.1))
def test_a_rotation_that_is_nearly_one_is_made_one(scale, yaw):
    turned = (scale * math.cos(yaw / 2), 0.0, 0.0, scale * math.sin(yaw / 2))
    pose = pose_of(sport_state_of(message(turned)))
    assert sum(number**2 for number in pose.quaternion) == pytest.approx(1.0)
    assert 2 * math.atan2(pose.quaternion[2], pose.quaternion[3]) == pytest.approx(yaw, abs=1e-6)


@pytest.mark.parametrize(
    "broken",
    [
        {"quaternion": (0.0, 0.0, 0.0, 0.0)},
        {"quaternion": (2.0, 0.0, 0.0, 0.0)},
        {"quaternion": (math.nan, 0.0, 0.0, 1.0)},
        {"quaternion": (math.inf, 0.0, 0.0, 1.0)},
        {"position": (math.nan, 0.0, 0.0)},
        {"position": (0.0, -math.inf, 0.0)},
    ],
)
def test_numbers_that_are_no_place_are_no_pose(broken):
    assert pose_of(sport_state_of(message(**broken))) is None


# -- parameters


def test_the_parameters_make_the_limits_that_are_the_defaults():
    assert go2_config({p.name: p.default for p in GO2_STATE}) == CONFIG


@pytest.mark.parametrize("name", ["ready_modes", "ready_codes"])
def test_lists_are_numbers_with_commas_and_anything_else_is_refused(name):
    values = {p.name: p.default for p in GO2_STATE}
    check_go2({**values, name: " 1, 9 ,17,"})
    assert numbers_of(" 1, 9 ,17,", name) == {1, 9, 17} and numbers_of("", name) == frozenset()
    with pytest.raises(ParameterError, match=f"parameter {name} = 'walking' refused"):
        check_go2({**values, name: "walking"})


def test_what_takes_motions_has_a_name():
    assert set(MODES) >= CONFIG.ready_modes and set(CODES) >= CONFIG.ready_codes
