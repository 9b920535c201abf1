"""Parameter files: unknown keys are one clear line, wildcards are any client's, and what a file says of a
parameter.
"""

import pytest

from spec_vlm_nav.common.errors import ParameterError
from spec_vlm_nav.motion.parameters import MOTION, SHORTEST_M, check_motion
from spec_vlm_nav.parameters.files import OF_ROS, matches, refuse_unknown, said_in, wildcard_names
from spec_vlm_nav.parameters.nodes import tables

DEFAULTS = {p.name: p.default for p in MOTION}


def unknown(name, node="motion_node", shared=frozenset()):
    with pytest.raises(ParameterError) as error:
        refuse_unknown(node, [tables()[node][0].name, name], tables()[node], shared)
    assert "\n" not in str(error.value)
    return str(error.value)


# -- names no caller knows


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("max_liner", "did you mean max_linear?"),
        ("geofence", "did you mean geofence_m?"),
        ("response_timeout", "did you mean response_timeout_s?"),
        ("stop_stlye", "did you mean stop_style?"),
        ("colour", "see the list in docs/parameters.md"),
        ("gamma", "it belongs to vlm_nav_node"),
        ("", "see the list"),
    ],
)
def test_an_unknown_name_is_one_line_with_what_is_probably_meant(name, meant):
    said = unknown(name)
    assert said.startswith(f"motion_node has no parameter {name}: ") and meant in said


@pytest.mark.parametrize("node", tables())
def test_the_parameters_of_every_node_are_known_to_it_and_those_of_ros_to_all(node):
    table = tables()[node]
    given = [p.name for p in table] + sorted(OF_ROS) + ["qos_overrides./odom.subscription.depth"]
    refuse_unknown(node, given, table, frozenset())
    assert "did you mean" in unknown(f"{table[0].name}x", node)


def test_a_name_of_a_wildcard_section_may_be_another_nodes():
    refuse_unknown("motion_node", ["colour"], MOTION, frozenset({"colour"}))
    assert unknown("colours", shared=frozenset({"colour"}))


# -- wildcards


@pytest.fixture
def write(tmp_path):
    def written(text, name="params.yaml"):
        (tmp_path / name).write_text(text)
        return str(tmp_path / name)

    return written


@pytest.mark.parametrize("section", ["/**", "/*", '"**"', '"*"'])
def test_the_names_under_a_wildcard_are_collected(write, section):
    file = write(
        f"{section}:\n  ros__parameters: {{a: 1, b: 2}}\nmotion_node:\n  ros__parameters: {{c: 3}}\n"
    )
    given = ["node", "--ros-args", "--params-file", file]
    assert wildcard_names(given, "/motion_node") == {"a", "b"}


@pytest.mark.parametrize(
    "text", ["", "- 1", "a: [", "/**: 3", "/**:\n  ros__parameters: [1]", "/**:\n  ros__parameters:", "\x00"]
)
def test_files_that_say_nothing_give_no_names_and_no_word(write, text):
    file = write(text)
    assert wildcard_names(["--params-file", file], "/motion_node") == frozenset()
    assert said_in([file], "motion_node", "a") is None


def test_a_flag_without_a_file_and_a_file_that_is_not_there_give_no_names(write):
    one, two = (
        write("/**: {ros__parameters: {a: 1}}", "1.yaml"),
        write("/**: {ros__parameters: {b: 1}}", "2.yaml"),
    )
    given = ["--params-file", one, "--params-file", "/nowhere.yaml", "--params-file", two, "--params-file"]
    assert wildcard_names(given, "/motion_node") == {"a", "b"}


NODES = ("/motion_node", "/one/motion_node", "/one/two/motion_node", "/on/motion_node")
# What rclpy's own nodes took from these sections (rcl of Kilted); a row says for which of NODES.
TAKEN = {
    "/**": "1111", "**": "1111", "/**/**": "1111", "/**/*": "1111", "/*/**": "1111", "/*": "1000", "*": "1000",
    "/*/*": "0101", "/**/*/*": "0111", "/one/**": "0110", "one/**": "0110", "/one/*": "0100",
    "/one/two/**": "0010", "/**/one/**": "0110", "/**/two/*": "0010", "/**/two/**": "0010", "/ONE/**": "0000",
    "/**/motion_node": "1111", "**/motion_node": "1111", "/*/motion_node": "0101", "*/motion_node": "0101",
    "/one/**/motion_node": "0110", "/one/*/motion_node": "0010", "/**/one/motion_node": "0100",
    "/*/two/motion_node": "0010", "/one/motion_node": "0100", "one/motion_node": "0100", "/motion_node": "1000",
    "motion_node": "1000",
}  # fmt: skip


@pytest.mark.parametrize("section", TAKEN)
def test_a_section_is_meant_for_the_nodes_that_rcl_gives_it_to(section, write):
    assert "".join(str(int(matches(section, node))) for node in NODES) == TAKEN[section]
    file = write(f'"{section}": {{ros__parameters: {{geofence_m: 3.0, of_another: 1}}}}')
    for node, taken in zip(NODES, TAKEN[section], strict=True):
        namespace = node.removesuffix("motion_node")
        assert (said_in([file], "motion_node", "geofence_m", namespace) == 3.0) == (taken == "1")
        shared = wildcard_names(["--params-file", file], node)
        assert ("of_another" in shared) == (taken == "1" and section.endswith("*"))


@pytest.mark.parametrize(
    ("files", "taken"),
    [
        ([[("/one/motion_node", 1), ("/**", 2)]], 2),
        ([[("/**", 2), ("/one/motion_node", 1)]], 1),
        ([[("/**", 1), ("/one/motion_node", 2)], [("/**", 3)]], 2),
        ([[("/one/motion_node", 2)], [("/**", 3)]], 3),
        ([[("/**", 3)], [("/one/motion_node", 2)]], 2),
        ([[("/one/motion_node", 2), ("/**", 3)], [("/one/motion_node", 4)]], 3),
        ([[("one/motion_node", 1), ("/one/motion_node", 2)]], 2),
        ([[("/**/motion_node", 1), ("/*/motion_node", 2)]], 2),
    ],
)
def test_of_several_sections_the_one_that_rcl_takes_has_the_word(files, taken, write):
    """As rclpy's own nodes took them."""
    paths = [
        write("".join(f'"{key}": {{ros__parameters: {{a: {value}}}}}\n' for key, value in file), f"{i}.yaml")
        for i, file in enumerate(files)
    ]
    assert said_in(paths, "motion_node", "a", "/one") == taken


@pytest.mark.parametrize(
    "text",
    [
        "one:\n  motion_node:\n    ros__parameters: {a: 5}\n",
        '/one:\n  "**":\n    ros__parameters: {a: 5}\n',
        'one:\n  "*":\n    ros__parameters: {a: 5}\n',
    ],
)
def test_sections_within_sections_are_joined(text, write):
    assert said_in([write(text)], "motion_node", "a", "one") == 5
    assert said_in([write(text)], "motion_node", "a", "") is None


# -- what files say of one parameter


@pytest.mark.parametrize(
    "text",
    [
        "motion_node: {ros__parameters: {dry_run: true}}",
        "/motion_node: {ros__parameters: {dry_run: true}}",
        "/**/motion_node: {ros__parameters: {dry_run: true}}",
        "/**: {ros__parameters: {dry_run: true}}",
        '"*": {ros__parameters: {dry_run: true}}',
        "/robot_1/motion_node: {ros__parameters: {dry_run: true}}",
        "robot_1: {motion_node: {ros__parameters: {dry_run: true}}}",
        "/a: {b: {motion_node: {ros__parameters: {other: 1, dry_run: true}}}}",
        "/a: {motion_node: {ros__parameters: {other: 1}}, '**': {ros__parameters: {dry_run: true}}}",
        "broken: 3\nmotion_node: {ros__parameters: {dry_run: true}}",
    ],
)
def test_what_is_said_is_found_in_every_form_of_a_section(write, text):
    assert said_in([write(text)], "motion_node", "dry_run") is True


@pytest.mark.parametrize(
    "text",
    [
        "other_node: {ros__parameters: {dry_run: true}}",
        "my_motion_node: {ros__parameters: {dry_run: true}}",
        "motion_node: {dry_run: true}",
        "motion_node: {ros__parameters: {not_dry_run: true}}",
        "motion_node: {other: {ros__parameters: {dry_run: true}}}",
    ],
)
def test_what_is_said_of_others_is_not_said_of_it(write, text):
    assert said_in([write(text)], "motion_node", "dry_run") is None


def test_the_last_file_that_says_something_has_the_word(write):
    first = write("motion_node: {ros__parameters: {max_linear: 0.1}}", "1.yaml")
    second = write("/**: {ros__parameters: {max_linear: 0.2}}", "2.yaml")
    silent = write("motion_node: {ros__parameters: {max_angular: 0.3}}", "3.yaml")
    files = [first, "/nowhere.yaml", second, silent, write("a: [", "4.yaml")]
    assert said_in(files, "motion_node", "max_linear") == 0.2
    assert said_in([second, first], "motion_node", "max_linear") == 0.1
    assert said_in([], "motion_node", "max_linear") is None


def test_false_and_zero_are_said(write):
    assert said_in([write("/**: {ros__parameters: {dry_run: false}}")], "motion_node", "dry_run") is False
    assert said_in([write("/**: {ros__parameters: {geofence_m: 0.0}}")], "motion_node", "geofence_m") == 0.0


# -- limits that contradict each other (others: test_parameters.py)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            {"min_linear": 0.6, "max_linear": 0.5},
            "min_linear = 0.6 and max_linear = 0.5 contradict each other",
        ),
        ({"min_angular": 0.9, "max_angular": 0.8}, "the base would not move at all"),
        ({"min_linear": 0.18, "unverified_max_linear": 0.15}, "unverified_max_linear = 0.15"),
        ({"min_linear": 0.14, "unanswered_max_linear": 0.1}, "unanswered_max_linear = 0.1"),
        ({"min_angular": 0.39, "unanswered_max_angular": 0.3}, "unanswered_max_angular = 0.3"),
        ({"actuation_delay_s": 0.8, "response_timeout_s": 0.7}, "every response would arrive too late"),
        ({"geofence_m": 0.1}, "geofence_m = 0.1 is smaller than the shortest motion, 0.25 m"),
        ({"geofence_m": SHORTEST_M - 0.001}, "0 means no fence"),
    ],
)
def test_limits_that_contradict_each_other_are_one_line_with_both_values(given, said):
    with pytest.raises(ParameterError) as error:
        check_motion({**DEFAULTS, **given})
    assert said in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize(
    "given",
    [
        {"geofence_m": 0.0},
        {"geofence_m": SHORTEST_M},
        {"min_linear": 0.15, "unverified_max_linear": 0.15},
        {"actuation_delay_s": 0.7, "response_timeout_s": 0.7},
    ],
)
def test_limits_that_meet_are_taken(given):
    check_motion({**DEFAULTS, **given})
