"""The parameter tables: defaults are allowed, wrong values are refused with the range, the README shows them."""

from pathlib import Path

import pytest
import yaml

from spec_vlm_nav.blackbox_parameters import BLACKBOX
from spec_vlm_nav.camera_parameters import CAMERA
from spec_vlm_nav.decider_parameters import VLM_NAV
from spec_vlm_nav.errors import ParameterError
from spec_vlm_nav.motion_parameters import MOTION
from spec_vlm_nav.parameters import check_all, markdown
from spec_vlm_nav.view_parameters import VIEW

ROOT = Path(__file__).resolve().parents[2]
TABLES = {
    "vlm_nav_node": VLM_NAV,
    "motion_node": MOTION,
    "view_node": VIEW,
    "camera_decode_node": CAMERA,
    "blackbox_node": BLACKBOX,
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
        (
            "method",
            "magic",
            "parameter method = 'magic' refused: allowed is one of fsd, auto, sd, specedge, picospec, ar",
        ),
        ("temperature", float("nan"), "allowed is 0 to 2"),
        ("colour", 1, "no parameter 'colour' here"),
    ],
)
def test_a_wrong_value_is_refused_with_what_is_allowed(name, value, said):
    with pytest.raises(ParameterError, match=said):
        check_all(VLM_NAV, {name: value})


@pytest.mark.parametrize("node", ["vlm_nav_node", "motion_node"])
def test_the_shipped_parameter_file_holds_allowed_values_only(node):
    content = yaml.safe_load((ROOT / "config" / "robot.yaml").read_text())
    check_all(TABLES[node], content[f"/**/{node}"]["ros__parameters"])


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)
def test_the_readme_shows_the_tables_as_they_are(table):
    assert markdown(table) in (ROOT / "ros2_ws/src/spec_vlm_nav/README.md").read_text()
