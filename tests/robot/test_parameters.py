"""The parameter tables: defaults are allowed, wrong values are refused with the range, the README shows them."""

from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from spec_vlm_nav.blackbox.parameters import BLACKBOX
from spec_vlm_nav.camera.parameters import CAMERA
from spec_vlm_nav.common.errors import ParameterError
from spec_vlm_nav.common.parameters import check_all, config_of, fixed, markdown
from spec_vlm_nav.deciding.parameters import VLM_NAV
from spec_vlm_nav.model.decider import ROBOT_METHODS
from spec_vlm_nav.motion.ahead.corridor import CorridorConfig, Mounting
from spec_vlm_nav.motion.parameters import MOTION, check_motion, corridor_config
from spec_vlm_nav.robot.parameters import GO2_STATE
from specdec.methods import METHODS, get_method

ROOT = Path(__file__).resolve().parents[2]
TABLES = {
    "vlm_nav_node": VLM_NAV,
    "motion_node": MOTION,
    "camera_decode_node": CAMERA,
    "blackbox_node": BLACKBOX,
    "go2_state_node": GO2_STATE,
}


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)
def test_every_default_is_allowed_and_described(table):
    for parameter in table:
        parameter.check(parameter.default)
        assert len(parameter.description) > 5
    assert len({p.name for p in table}) == len(table)


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("gamma", 0, "parameter gamma = 0 refused: allowed is 1 to 32"),
        ("gamma", 4.0, "parameter gamma = 4.0 refused: allowed is int, 1 to 32"),
        ("gamma", True, "refused"),
        pytest.param("gamma", 10**400, "refused: allowed is 1 to 32", id="gamma-huge"),
        (
            "method",
            "magic",
            "parameter method = 'magic' refused: allowed is one of ar, cloud-sd, sd, dsd",
        ),
        ("method", "split", "parameter method = 'split' refused: it runs layers of the target on the edge"),
        ("method", "picospec-lossy", "it is not exact when sampling"),
        ("method", "sd+resample:truncated", "it is not exact when sampling"),
        ("method", "hsl+length:token:2", "parameter method = .* refused: "),
        ("method", "sd+colour:red", "axis 'colour' of method"),
        ("method", "", "refused: allowed is one of ar"),
        ("method", 3, "refused: allowed is str, one of ar"),
        ("energy_root", "/dev/null", "it must be a folder or none"),
        ("energy_root", "x" * 5000, "it must be a folder or none"),
        ("temperature", float("nan"), "allowed is 0 to 2"),
        ("colour", 1, "no parameter 'colour' here"),
    ],
)
def test_a_wrong_value_is_refused_with_what_is_allowed(name, value, said):
    with pytest.raises(ParameterError, match=said):
        check_all(VLM_NAV, {name: value})


@pytest.mark.parametrize(
    "name", [*METHODS, "sd+length:token:0.7", "sd+length:sequence:moving", "fsd+length:worth"]
)
def test_the_robot_offers_every_method_that_needs_no_target_on_the_edge_and_is_exact(name):
    method = get_method(name)
    if method.split or method.lossy:
        assert name not in ROBOT_METHODS
        with pytest.raises(ParameterError, match=f"method = '{name}' refused"):
            check_all(VLM_NAV, {"method": name})
    else:
        assert "+" in name or name in ROBOT_METHODS
        check_all(VLM_NAV, {"method": name})


@pytest.mark.parametrize("node", ["vlm_nav_node", "motion_node"])
def test_the_shipped_parameter_file_holds_allowed_values_only(node):
    content = yaml.safe_load((ROOT / "config" / "robot.yaml").read_text())
    check_all(TABLES[node], content[f"/**/{node}"]["ros__parameters"])


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)
def test_the_readme_shows_the_tables_as_they_are(table):
    assert markdown(table) in (ROOT / "ros2_ws/src/spec_vlm_nav/docs/parameters.md").read_text()


DEFAULTS = {p.name: p.default for p in MOTION}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"collision_source": "cloud"}, "needs collision_cloud_z_m"),
        ({"collision_cloud_min_z_m": 0.7}, "no point of a cloud would count"),
        ({"go2_obstacles_avoid": True}, "needs motion_backend go2_sport, not twist"),
        ({"go2_obstacles_avoid": True, "motion_backend": "nav2"}, "not nav2"),
    ],
)
def test_parameters_of_motion_node_that_contradict_each_other_are_refused_with_the_reason(given, said):
    check_motion(DEFAULTS)
    with pytest.raises(ParameterError, match=said):
        check_motion({**DEFAULTS, **given})


def test_what_fits_together_is_taken():
    check_motion({**DEFAULTS, "collision_source": "cloud", "collision_cloud_z_m": 0.3})
    for backend in ("go2_sport", "auto"):
        check_motion({**DEFAULTS, "go2_obstacles_avoid": True, "motion_backend": backend})


def test_the_parameters_of_the_cloud_reach_its_reader():
    assert corridor_config(DEFAULTS) == CorridorConfig()
    given = {f"collision_cloud_{n}": 0.1 * i for i, n in enumerate(["x_m", "y_m", "z_m", "roll_rad"], 1)}
    given |= {"collision_cloud_pitch_rad": 0.5, "collision_cloud_yaw_rad": 0.6, "collision_cloud_side_m": 0.7}
    made = corridor_config({**DEFAULTS, **given}).cloud
    assert made.mounting == Mounting(0.1, 0.2, pytest.approx(0.3), 0.4, 0.5, 0.6) and made.side_m == 0.7


def test_a_field_that_no_parameter_is_called_by_is_refused_unless_it_is_said_to_be_constant():
    """Of a parameter that was renamed, what an operator sets would else be ignored without a word."""

    @dataclass(frozen=True)
    class Timings:
        decision_timeout_s: float = 20.0
        first_retry_s: float = 1.0

    @dataclass(frozen=True)
    class FixedTimings(Timings):
        first_retry_s: float = fixed(1.0)

    given = {"decision_timeout_s": 5.0}
    assert config_of(FixedTimings, given) == FixedTimings(5.0)
    assert config_of(Timings, given, first_retry_s=2.0) == Timings(5.0, 2.0)
    with pytest.raises(KeyError, match="first_retry_s"):
        config_of(Timings, given)
