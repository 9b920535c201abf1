"""config/sros2/policy.xml has the form that SROS 2 takes; each node may use what its source creates, and no more."""

import ast
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

PACKAGE = Path(__file__).resolve().parents[2] / "ros2_ws/src/spec_vlm_nav"
ROS = PACKAGE / "spec_vlm_nav" / "ros"
NODES = ROS / "nodes"
POLICY = PACKAGE / "config" / "sros2" / "policy.xml"
NAMES = sorted(path.stem for path in NODES.glob("*_node.py"))
assert NAMES
# The call that creates it, and what it is: which argument is the name, and the policy's word.
CREATES = {
    "create_publisher": (1, "publish"),
    "create_subscription": (1, "subscribe"),
    "subscribe": (2, "subscribe"),
    "subscribe_stamped": (2, "subscribe"),
    "PolledTopic": (2, "subscribe"),
    "on_topic": (1, "subscribe"),
    "RecordedTopic": (0, "subscribe"),
    "create_service": (1, "reply"),
    "create_client": (1, "request"),
    "publisher": (1, "publish"),
    "client": (1, "request"),
    "Diagnostics": (None, "publish"),
}
# Names that are put together: by the file and the source of the argument.
MADE = {
    ("collision_sensor.py", "source"): ["scan", "depth", "cloud"],
    ("outputs.py", "f'api/{service}/request'"): ["api/sport/request", "api/obstacles_avoid/request"],
    ("blackbox.py", "SPORT"): ["api/sport/request"],
    ("blackbox.py", "heard.name"): [],  # of RecordedTopic
    ("blackbox.py", "f'{name}/get_parameters'"): [
        "motion_node/get_parameters",
        "vlm_nav_node/get_parameters",
    ],
    ("nav2_actions.py", "f'{name}/_action/cancel_goal'"): [],  # of the action
    ("subscriptions.py", "topic"): [],  # of subscribe and PolledTopic
    ("publishers.py", "topic"): [],  # of publisher
    ("robot.py", "image"): ["image"],
    ("robot.py", "topic"): [],  # of on_topic
    ("robot.py", "odom"): ["odom"],
    ("command_publisher.py", "at + topic"): [],  # of publisher
    ("command_publisher.py", "at + service"): [],  # of client
    ("command_publisher.py", "f'{each}/set_parameters'"): [
        "motion_node/set_parameters",
        "vlm_nav_node/set_parameters",
    ],
    ("command_publisher.py", "f'{each}/get_parameters'"): [
        "motion_node/get_parameters",
        "vlm_nav_node/get_parameters",
    ],
    ("go2_state_node.py", "topic"): ["sportmodestate", "lowstate"],
    ("loosening.py", "CHANGES"): ["safety_changes"],
}
ACTIONS = {"action_server.py": {("execute", "navigate_instruction")}}
ACTIONS["missions.py"] = {("call", "navigate_instruction")}
ACTIONS["mission_node.py"] = {("execute", "run_mission")}
ACTIONS["command_publisher.py"] = {("call", "run_mission")}
ACTIONS["nav2_actions.py"] = {("call", "drive_on_heading"), ("call", "spin")}
PARAMETERS = "describe_parameters get_parameter_types get_parameters list_parameters set_parameters"
LIFECYCLE = "change_state get_available_states get_available_transitions get_state get_transition_graph"


def created_in(path):
    """(what, name) of everything that a file creates."""
    found = set(ACTIONS.get(path.name, ()))
    for call in ast.walk(ast.parse(path.read_text())):
        if not isinstance(call, ast.Call):
            continue
        called = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
        if called not in CREATES:
            continue
        place, what = CREATES[called]
        if place is None:
            found.add((what, "/diagnostics"))
        elif isinstance(name := call.args[place], ast.Constant):
            found.add((what, name.value))
        elif (written := ast.unparse(name)).startswith("f'{at}") and "{" not in written[6:]:
            found.add((what, written[6:-1]))  # in any namespace
        else:
            found |= {(what, one) for one in MADE[path.name, ast.unparse(name)]}
    return found


def files_of(node):
    """The files of ros/ that a node imports, itself first."""
    waiting, known = [NODES / f"{node}.py"], []
    while waiting:
        path = waiting.pop()
        if path.name in ("basics.py", "__init__.py") or path in known:
            continue
        known.append(path)
        modules = re.findall(r"^from spec_vlm_nav\.ros\.([\w.]+) import", path.read_text(), re.MULTILINE)
        waiting += [ROS / f"{module.replace('.', '/')}.py" for module in modules]
    return known


def created_by(node):
    return {one for path in files_of(node) for one in created_in(path)}


def profiles():
    """By enclave: {(what, name)}."""
    found = {}
    for enclave in ElementTree.parse(POLICY).getroot().iter("enclave"):
        (profile,) = enclave.iter("profile")
        found[enclave.get("path")] = {
            (what, entry.text) for group in profile for what in group.attrib for entry in group
        }
    return found


def test_it_has_the_form_that_sros2_s_schema_asks_for():
    root = ElementTree.parse(POLICY).getroot()
    assert (root.tag, root.get("version"), [child.tag for child in root]) == ("policy", "0.2.0", ["enclaves"])
    allowed = {
        "topics": ({"publish", "subscribe"}, "topic"),
        "services": ({"reply", "request"}, "service"),
        "actions": ({"call", "execute"}, "action"),
    }
    for enclave in root[0]:
        assert enclave.tag == "enclave" and set(enclave.attrib) == {"path"}
        for all_profiles in enclave:
            assert all_profiles.tag == "profiles" and len(all_profiles)
            for profile in all_profiles:
                assert profile.tag == "profile" and set(profile.attrib) == {"ns", "node"}
                assert enclave.get("path") == f"/{PACKAGE.name}/{profile.get('node')}"
                for group in profile:
                    ways, kind = allowed[group.tag]
                    assert set(group.attrib) <= ways and set(group.attrib.values()) == {"ALLOW"}
                    assert len(group) and all(entry.tag == kind for entry in group)


def test_every_node_has_an_enclave_and_there_is_one_for_people():
    assert sorted(profiles()) == sorted(f"/{PACKAGE.name}/{name}" for name in [*NAMES, "operator"])


@pytest.mark.slow
@pytest.mark.parametrize("node", NAMES)
def test_each_node_may_use_what_it_creates(node):
    allowed = profiles()[f"/{PACKAGE.name}/{node}"]
    assert created_by(node) <= allowed
    wanted = {("reply", f"~/{service}") for service in PARAMETERS.split()}
    if node == "vlm_nav_node":
        wanted |= {("reply", f"~/{service}") for service in LIFECYCLE.split()}
        wanted.add(("publish", "~/transition_event"))
    wanted |= {("publish", "/rosout"), ("publish", "/parameter_events"), ("subscribe", "/clock")}
    assert wanted <= allowed


# Names that the launch files give to topics, beside the nodes' own.
REMAPPED = {
    "image": ["camera/image_raw", "camera/image_raw/compressed"],
    "odom": ["/utlidar/robot_odom"],
    "cmd_vel": ["cmd_vel_nav"],
    "cloud": ["/utlidar/cloud", "/utlidar/cloud_base"],
    "video": ["/frontvideostream"],
    "lowstate": ["/lf/lowstate"],
    "sportmodestate": ["/sportmodestate"],
    "api/sport/request": ["/api/sport/request"],
    "api/obstacles_avoid/request": ["/api/obstacles_avoid/request"],
}
EVERYBODY = {"/rosout", "/parameter_events", "/clock", "~/transition_event"}


@pytest.mark.slow
@pytest.mark.parametrize("node", NAMES)
def test_no_node_may_publish_hear_or_call_what_it_does_not_create(node):
    created = created_by(node)
    others = {(what, new) for what, name in created for new in REMAPPED.get(name, ())}
    for what, name in profiles()[f"/{PACKAGE.name}/{node}"] - created - others:
        assert name in EVERYBODY or what == "reply", (what, name)


def test_names_that_the_launch_files_give_are_in_the_policy():
    texts = [path.read_text() for path in (PACKAGE / "launch").glob("go2*.launch.py")]
    given = {name for text in texts for name in re.findall(r'"(/[\w/]+)"', text)}
    assert "/lf/lowstate" in given
    assert given <= {name for names in profiles().values() for _, name in names}


def test_only_motion_node_may_move_the_robot_and_people_may_not():
    for enclave, allowed in profiles().items():
        moves = {name for what, name in allowed if what == "publish" and re.search("cmd_vel|request", name)}
        assert bool(moves) == enclave.endswith("/motion_node")


@pytest.mark.slow
def test_people_may_do_what_nodes_offer_them():
    operator = profiles()[f"/{PACKAGE.name}/operator"]
    heard = {name for what, name in created_by("motion_node") if what == "subscribe"}
    words = {name for what, name in operator if what == "publish"} - EVERYBODY
    assert words - {"vlm_nav_node/cancel"} <= heard
    for node in NAMES:
        for what, name in created_by(node):
            if what == "reply":
                assert ("request", name.replace("~", node)) in operator
            if what == "execute":
                assert ("call", name) in operator
