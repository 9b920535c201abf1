"""The launch files, evaluated with stand-ins for `launch`: what reaches the nodes, and what is started again."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from spec_vlm_nav.common.errors import ParameterError
from spec_vlm_nav.common.parameters import Parameter
from spec_vlm_nav.parameters.nodes import parameter_of, tables
from tests.robot.launched import PACKAGE, nodes, values

CONFIG = PACKAGE / "config"


@pytest.fixture
def yours(tmp_path):
    def write(**sections):
        file = tmp_path / "yours.yaml"
        file.write_text(
            yaml.safe_dump({f"/**/{node}": {"ros__parameters": said} for node, said in sections.items()})
        )
        return str(file)

    return write


def test_an_argument_counts_only_when_it_is_given(started, yours):
    file = yours(
        vlm_nav_node={"method": "ar", "exploration": "frontier_search", "threads": 3, "autostart": False}
    )
    found, context = started("go2.launch.py", params_file=file, method="sd", settle_s="1")
    said = values(nodes(found)["vlm_nav_node"], context)
    assert said["method"] == "sd" and said["settle_s"] == 1.0 and isinstance(said["settle_s"], float)
    assert said["threads"] == 3 and said["autostart"] is False and said["exploration"] == "frontier_search"
    assert "verifier" not in said and "on_link_loss" not in said


def test_the_address_of_the_camera_s_network_stays_that_of_yaml_unless_it_is_given(started, yours):
    file = yours(camera_decode_node={"interface": "192.168.123.99"})
    for given, interface in (({}, "192.168.123.99"), ({"camera_interface": "10.0.0.3"}, "10.0.0.3")):
        found, context = started("go2.launch.py", params_file=file, camera_decode="url", **given)
        said = values(nodes(found)["camera_decode_node"], context)
        assert said["interface"] == interface and said["source"] == "url"


def test_on_a_go2_the_model_alone_decides_and_the_sport_api_moves(started):
    for file in ("go2.launch.py", "go2_bringup.launch.py"):
        found, context = started(file)
        if file == "go2_bringup.launch.py":
            (group,) = (a for a in found if type(a).__name__ == "GroupAction")
            (included,) = (a for a in group.args[0] if type(a).__name__ == "IncludeLaunchDescription")
            passed_on = {k: v for k, v in included.kwargs["launch_arguments"]}
            found, context = started("go2.launch.py", **passed_on)
        started_nodes = nodes(found)
        assert values(started_nodes["vlm_nav_node"], context)["exploration"] == "none"
        assert values(started_nodes["motion_node"], context)["motion_backend"] == "auto"
        with_robot_state = "robot_state_timeout_s" in values(started_nodes["motion_node"], context)
        assert with_robot_state == (file == "go2_bringup.launch.py")


@pytest.mark.parametrize("file", ["go2.launch.py", "sim.launch.py"])
def test_a_dry_run_in_yaml_reaches_motion_node_as_well(started, yours, file):
    said = yours(vlm_nav_node={"dry_run": True})
    found, context = started(file, params_file=said)
    if file == "sim.launch.py":
        (included,) = (a for a in found if type(a).__name__ == "IncludeLaunchDescription")
        found, context = started("go2.launch.py", **dict(included.kwargs["launch_arguments"]))
    assert values(nodes(found)["motion_node"], context)["dry_run"] is True
    assert values(nodes(found)["vlm_nav_node"], context)["dry_run"] is True


def test_a_dry_run_that_is_given_wins_over_yaml(started, yours):
    found, context = started(
        "go2.launch.py", params_file=yours(vlm_nav_node={"dry_run": True}), dry_run="false"
    )
    assert values(nodes(found)["motion_node"], context)["dry_run"] is False
    assert values(nodes(found)["vlm_nav_node"], context)["dry_run"] is False


def test_every_node_but_the_one_that_latches_stops_comes_back(started):
    found, _ = started("go2.launch.py", view="true", camera_decode="topic_unitree")
    assert {name: node.kwargs["respawn"] for name, node in nodes(found).items()} == {
        "motion_node": False,
        "vlm_nav_node": True,
        "camera_decode_node": True,
        "blackbox_node": True,
    }


def test_the_console_hears_the_camera_as_its_topic_is_named(started, yours):
    for given, transport in (
        ({}, "raw"),
        ({"image": "camera/image_raw/compressed"}, "compressed"),
        ({"image": "camera/image_raw/compressed", "image_transport": "raw"}, "raw"),
        ({"params_file": yours(console_node={"image_transport": "compressed"})}, "compressed"),
    ):
        found, context = started("console.launch.py", **given)
        assert values(nodes(found)["console_node"], context)["image_transport"] == transport, given


def test_the_console_gets_what_it_is_given_and_nothing_else(started):
    given = {"port": "0", "require_operator": "true", "certificate": "c.pem", "key": "k.pem", "templates": "a|b"}
    found, context = started("console.launch.py", namespace="robot1", **given)
    said = values(nodes(found)["console_node"], context)
    assert said == {
        "port": 0, "require_operator": True, "certificate": "c.pem", "key": "k.pem", "templates": "a|b",
        "image_transport": "raw",
    }  # fmt: skip
    assert set(said) <= {parameter.name for parameter in tables()["console_node"]}


@pytest.mark.parametrize("file", ["go2.launch.py", "sim.launch.py"])
def test_console_true_brings_the_console_and_the_missions_with_the_robot(started, file):
    for asked in (False, True):
        found, context = started(file, **({"console": "true", "require_operator": "true"} if asked else {}))
        if file == "sim.launch.py":
            (included,) = (a for a in found if type(a).__name__ == "IncludeLaunchDescription")
            found, context = started("go2.launch.py", **dict(included.kwargs["launch_arguments"]))
        robot = nodes(found)
        assert ({"console_node", "mission_node"} <= set(robot)) is asked
        if asked:
            said = values(robot["console_node"], context)
            assert said["require_operator"] is values(robot["motion_node"], context)["require_operator"] is True
            assert bool(said.get("simulator")) is (file == "sim.launch.py")


def test_the_simulator_s_launch_needs_no_folder_and_no_argument(started, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    found, _ = started("sim.launch.py")
    (verifier,) = (a for a in found if a.kwargs.get("name") == "cloud_verifier")
    command = verifier.kwargs["cmd"]
    assert Path(command[command.index("--model") + 1]).is_dir()
    assert command[command.index("--bind") + 1] == "tcp://127.0.0.1:5555"


def test_the_simulator_s_verifier_is_where_the_robot_looks_for_it(started, yours):
    file = yours(vlm_nav_node={"verifier": "tcp://127.0.0.1:7777"})
    found, _ = started("sim.launch.py", params_file=file)
    (verifier,) = (a for a in found if a.kwargs.get("name") == "cloud_verifier")
    assert "tcp://127.0.0.1:7777" in verifier.kwargs["cmd"]


@pytest.mark.parametrize("namespace", ["one", "/one", "/one/"])
def test_a_namespace_may_be_written_with_slashes(started, tmp_path, namespace):
    file = tmp_path / "yours.yaml"
    said = {"verifier": "tcp://127.0.0.1:7777"}, {"verifier": "tcp://127.0.0.1:8888"}
    file.write_text(yaml.safe_dump({f"/{robot}/vlm_nav_node": {"ros__parameters": said[robot == "two"]}
                                    for robot in ("one", "two")}))  # fmt: skip
    found, _ = started("sim.launch.py", params_file=str(file), namespace=namespace)
    by_name = {a.kwargs.get("name"): a.kwargs.get("cmd") for a in found}
    assert "__ns:=/one" in by_name["navsim"] and "tcp://127.0.0.1:7777" in by_name["cloud_verifier"]
    file.write_text(yaml.safe_dump({"/two/console_node": {"ros__parameters": {"image_transport": "raw"}}}))
    given = {"image": "camera/image_raw/compressed", "params_file": str(file), "namespace": namespace}
    found, _ = started("console.launch.py", **given)
    said = [part for part in nodes(found)["console_node"].kwargs["parameters"] if isinstance(part, dict)]
    assert said == [{"image_transport": "compressed"}]


@pytest.mark.parametrize(
    ("file", "argument"),
    [(file, "params_file") for file in ("go2", "sim", "console")]
    + [("go2", "robot_params_file"), ("sim", "sim_params_file")],
)
def test_a_parameter_file_that_does_not_exist_is_refused(started, tmp_path, monkeypatch, file, argument):
    # launch_ros warns and starts the node without it: with the default limits.
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "yours.yaml").write_text("{}")
    for missing in (str(tmp_path / "typo.yaml"), str(tmp_path), "~/yours.yaml"):
        with pytest.raises(ParameterError, match="there is no parameter file"):
            started(f"{file}.launch.py", **{argument: missing})


@pytest.mark.parametrize("said", ["tru", "", "2", "none"])
@pytest.mark.parametrize(
    ("file", "argument"),
    [*(("go2", name) for name in ("motion", "view", "mission", "console", "blackbox")), ("sim", "start_verifier")],
)
def test_a_switch_that_is_neither_true_nor_false_is_refused(started, file, argument, said):
    with pytest.raises(ParameterError, match=f"{argument} must be true or false"):
        started(f"{file}.launch.py", **{argument: said})


@pytest.mark.parametrize(
    ("file", "argument", "said"),
    [
        *(("go2", "threads", said) for said in ("two", "-1", "1.5", "[1]")),
        ("go2", "method", "sdd"),
        ("go2", "dry_run", "maybe"),
        ("go2", "settle_s", "nan"),
        ("console", "port", "99999"),
        ("console", "require_operator", "2"),
    ],
)
def test_a_value_that_the_node_would_refuse_is_refused_before_any_node_starts(started, file, argument, said):
    with pytest.raises(ParameterError, match=argument):
        started(f"{file}.launch.py", **{argument: said})


def test_a_switch_may_be_written_as_in_yaml(started):
    for said in ("true", "True", "yes", "on", "1"):
        assert "mission_node" in nodes(started("go2.launch.py", mission=said)[0])
        found, _ = started("sim.launch.py", start_verifier=said, use_sim_time=said)
        by_name = {a.kwargs.get("name"): a.kwargs.get("cmd") for a in found}
        assert "cloud_verifier" in by_name and "publish_clock:=true" in by_name["navsim"]
    for said in ("false", "FALSE", "no", "off", "0"):
        assert "motion_node" not in nodes(started("go2.launch.py", motion=said)[0])


def test_nothing_is_started_before_the_robot_s_launch_file_has_taken_its_arguments(started):
    # It may refuse one, which ends the launch at once: a simulator that was starting would be left behind.
    found, _ = started("sim.launch.py")
    kinds = [type(action).__name__ for action in found]
    assert kinds == ["IncludeLaunchDescription", "ExecuteProcess", "ExecuteProcess"]


def test_without_a_verifier_here_its_model_need_not_be_here(started):
    started("sim.launch.py", start_verifier="false", model="default_models/of-another-machine")


def test_every_parameter_that_is_an_argument_exists_in_all_its_nodes_with_one_type():
    text = (PACKAGE / "launch/go2.launch.py").read_text()
    scope: dict = {"parameter_of": parameter_of, "Parameter": Parameter}
    exec(text[text.index("DECIDING, MOVING") : text.index("def make_nodes")], scope)
    assert set(scope["PARAMETERS"]) > {"gguf", "quantize", "method", "motion_backend"}
    for name, parameter in scope["PARAMETERS"].items():
        for owner in scope["OWNERS"][name] if name != "use_sim_time" else ():
            assert type(parameter_of(owner, name).default) is type(parameter.default), name
        assert parameter.description


def test_files_do_not_repeat_what_the_nodes_have_by_themselves():
    for name in ("robot.yaml", "go2.yaml", "go2_bringup.yaml"):
        for section, said in yaml.safe_load((CONFIG / name).read_text()).items():
            table = {p.name: p.default for p in tables()[section.removeprefix("/**/")]}
            repeated = [p for p, value in said["ros__parameters"].items() if table[p] == value]
            assert not repeated or section == "/**/go2_state_node", (name, section, repeated)
