"""The numbers on the wire: those of spec_vlm_nav_interfaces and those of common/codes.py are the same, both ways."""

import ast
import re
from pathlib import Path

import pytest

from spec_vlm_nav.common.codes import ActionSource, ErrorCode, LinkState, MotionState, Verification
from spec_vlm_nav.deciding.parts.interfaces import NavigatorPhase
from spec_vlm_nav.model.course import Origin
from spec_vlm_nav.motion.command import CommandKind
from spec_vlm_nav.motion.watchdogs import MISSION, OPERATOR

ROOT = Path(__file__).resolve().parents[2]
INTERFACES = ROOT / "ros2_ws/src/spec_vlm_nav_interfaces"
OURS = ["ros2_ws/src/spec_vlm_nav", "specnav", "navsim"]
CONSTANT = re.compile(r"uint8 ([A-Z_]+)=(\d+)")
ERRORS = {code.name: code.value for code in ErrorCode}
LINKS = {f"LINK_{state.name}": state.value for state in LinkState}
PHASES = {
    phase.name: number
    for number, phase in enumerate(p for p in NavigatorPhase if p is not NavigatorPhase.IDLE)
}
VERIFICATIONS = {verification.name: verification.value for verification in Verification}
KINDS = {kind.name: kind.value for kind in CommandKind}
ORIGINS = {f"{origin.name}_TOKEN": origin.value for origin in Origin}
STATES = {state.name: state.value for state in MotionState}
SOURCES = {source.name: source.value for source in ActionSource}


def constants(file):
    """The constants of a file: one dict for each run of lines without anything in between."""
    runs = [{}]
    for line in (INTERFACES / file).read_text().splitlines():
        if found := CONSTANT.match(line):
            runs[-1][found[1]] = int(found[2])
        elif runs[-1]:
            runs.append({})
    return [run for run in runs if run]


@pytest.mark.parametrize(
    ("file", "wanted"),
    [
        ("action/NavigateInstruction.action", [ERRORS, PHASES, LINKS]),
        ("msg/DecisionMetrics.msg", [ERRORS, SOURCES, VERIFICATIONS, ORIGINS]),
        ("msg/Presence.msg", [{"OPERATOR": OPERATOR, "MISSION": MISSION}]),
        ("msg/MotionStatus.msg", [STATES]),
        ("msg/MotionCommand.msg", [KINDS, SOURCES]),
        ("msg/Supervision.msg", [LINKS]),
    ],
)
def test_the_interface_files_have_exactly_the_numbers_of_the_code(file, wanted):
    assert constants(file) == wanted


def test_no_other_interface_file_has_constants():
    files = {
        f"{path.parent.name}/{path.name}" for path in INTERFACES.glob("*/*.*") if "=" in path.read_text()
    }
    numbered = {file for file in files if file.endswith((".msg", ".action", ".srv")) and constants(file)}
    assert len(numbered) == 6


@pytest.mark.slow
def test_our_code_reads_error_codes_and_motion_states_from_the_enums_alone():
    names = {"MotionStatus": set(STATES), "DecisionMetrics": {*ERRORS, *VERIFICATIONS, *SOURCES}}
    names |= {"Result": set(ERRORS), "Supervision": set(LINKS)}
    for folder in OURS:
        for path in (ROOT / folder).rglob("*.py"):
            text = path.read_text()
            tree = ast.parse(text) if any(name in text for name in names) else ast.Module([], [])
            for node in ast.walk(tree):
                if isinstance(node, ast.Attribute):
                    of = (
                        node.value.attr
                        if isinstance(node.value, ast.Attribute)
                        else getattr(node.value, "id", "")
                    )
                    assert node.attr not in names.get(of, ()), f"{path}:{node.lineno}: {of}.{node.attr}"
