"""config/diagnostics.yaml: each row that our nodes publish on /diagnostics belongs to exactly one analyzer."""

import ast
from pathlib import Path

import pytest
import yaml

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "ros2_ws/src/spec_vlm_nav/spec_vlm_nav"
# Where rows are made, and which node publishes them.
ROWS_OF = {
    "blackbox/box.py": "blackbox_node",
    "camera/decode.py": "camera_decode_node",
    "deciding/diagnostics.py": "vlm_nav_node",
    "motion/diagnostics.py": "motion_node",
    "ros/nodes/go2_state_node.py": "go2_state_node",
    "ros/nodes/mission_node.py": "mission_node",
    "ros/nodes/vlm_nav_node.py": "vlm_nav_node",
}


def rows(path):
    """Names given to DiagnosticRow, or to the helper _row that makes one."""
    calls = [
        node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call) and node.args
    ]
    makers = [
        call
        for call in calls
        if isinstance(call.func, ast.Name) and call.func.id in ("DiagnosticRow", "_row")
    ]
    return {str(call.args[0].value) for call in makers if isinstance(call.args[0], ast.Constant)}


def status_names():
    found = {path.relative_to(SOURCE).as_posix(): rows(path) for path in SOURCE.rglob("*.py")}
    assert {path for path, names in found.items() if names} == set(ROWS_OF)
    return {f"{ROWS_OF[path]}: {name}" for path, names in found.items() for name in names}


def analyzers():
    content = yaml.safe_load((ROOT / "config/diagnostics.yaml").read_text())
    values = content["/**"]["ros__parameters"]
    return {name: part for name, part in values.items() if isinstance(part, dict)}


def test_each_status_is_matched_by_exactly_one_analyzer_in_any_namespace():
    names = status_names()
    assert len(names) >= 15
    for namespace in ("", "one/", "fleet/one/"):
        for name in names:
            matching = [
                key
                for key, part in analyzers().items()
                if any(words in namespace + name for words in part["contains"])
            ]
            assert len(matching) == 1, (namespace + name, matching)


def test_analyzers_wait_for_no_row_that_no_node_publishes():
    wanted = [words for part in analyzers().values() for words in part["contains"]]
    assert sorted(wanted) == sorted(status_names())


def test_analyzers_are_of_the_generic_type_and_have_places_of_their_own():
    parts = analyzers().values()
    assert {part["type"] for part in parts} == {"diagnostic_aggregator/GenericAnalyzer"}
    assert len({part["path"] for part in parts}) == len(parts)
    # A number without a point would be an integer, which diagnostic_aggregator does not take.
    assert all(isinstance(part["timeout"], float) and part["timeout"] > 1.0 for part in parts)
