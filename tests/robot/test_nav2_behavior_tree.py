"""spec_vlm_nav_nav2: its C++ against stand-ins for Nav2's headers; ports, trees and the action agree."""

import re
import shutil
import subprocess
from pathlib import Path
from xml.etree import ElementTree

import pytest

SOURCES = Path(__file__).resolve().parents[2] / "ros2_ws" / "src"
PACKAGE = SOURCES / "spec_vlm_nav_nav2"
ACTION = SOURCES / "spec_vlm_nav_interfaces/action/NavigateInstruction.action"
BASIC_PORTS = {"server_name", "server_timeout"}  # of every BtActionNode
RENAMED = {"error_code_id": "error_code"}  # Nav2's name: ours
CPP = {
    "string": "std::string",
    "bool": "bool",
    "uint8": "uint8_t",
    "uint32": "uint32_t",
    "float64": "double",
    "builtin_interfaces/Duration": "builtin_interfaces::msg::Duration",
}

# What the node uses of BehaviorTree.CPP, rclcpp and Nav2, as they declare it.
ENGINE = r"""
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
namespace builtin_interfaces::msg { struct Duration { int sec; unsigned nanosec; }; }
namespace rclcpp { struct Duration {
  static Duration from_seconds(double) { return {}; }
  operator builtin_interfaces::msg::Duration() const { return {}; } }; }
namespace BT {
enum class NodeStatus { IDLE, RUNNING, SUCCESS, FAILURE };
struct RuntimeError : std::exception { explicit RuntimeError(const std::string &) {} };
struct NodeConfiguration {};
struct Expected { explicit operator bool() const { return true; } };
struct PortInfo {};
using PortsList = std::unordered_map<std::string, PortInfo>;
template<class T> std::pair<std::string, PortInfo> InputPort(const std::string & n, const std::string & = {})
{ return {n, {}}; }
template<class T> std::pair<std::string, PortInfo> InputPort(
  const std::string & n, const T &, const std::string &) { return {n, {}}; }
template<class T> std::pair<std::string, PortInfo> OutputPort(const std::string & n, const std::string & = {})
{ return {n, {}}; }
struct TreeNode {
  TreeNode(const std::string &, const NodeConfiguration &) {}
  virtual ~TreeNode() = default;
  template<class T> Expected getInput(const std::string &, T &) const { return {}; }
  template<class T> Expected setOutput(const std::string &, const T &) { return {}; }
};
using NodeBuilder = std::function<std::unique_ptr<TreeNode>(const std::string &, const NodeConfiguration &)>;
struct BehaviorTreeFactory {
  template<class T> void registerBuilder(const std::string &, const NodeBuilder &) { T::providedPorts(); } };
}
#define BT_REGISTER_NODES(factory) \
  extern "C" void BT_RegisterNodesFromPlugin(BT::BehaviorTreeFactory & factory)
"""
NODE = r"""
#pragma once
#include "nav2_behavior_tree/behavior_tree_engine.hpp"
namespace nav2_behavior_tree {
template<class ActionT> struct BtActionNode : public BT::TreeNode {
  struct Wrapped { std::shared_ptr<typename ActionT::Result> result; };
  BtActionNode(const std::string & tag, const std::string &, const BT::NodeConfiguration & conf)
  : BT::TreeNode(tag, conf) {}
  static BT::PortsList providedBasicPorts(BT::PortsList addition) { return addition; }
  virtual void on_tick() {}
  virtual BT::NodeStatus on_success() { return BT::NodeStatus::SUCCESS; }
  virtual BT::NodeStatus on_aborted() { return BT::NodeStatus::FAILURE; }
  virtual BT::NodeStatus on_cancelled() { return BT::NodeStatus::SUCCESS; }
  virtual void on_timeout() {}  // from Kilted on
  typename ActionT::Goal goal_;
  Wrapped result_;
};
}
"""


def parts_of_the_action():
    """(fields, constants) of goal, result and feedback."""
    parts = []
    for part in re.split(r"^---$", ACTION.read_text(), flags=re.MULTILINE):
        fields, constants = {}, {}
        for line in part.splitlines():
            if found := re.match(r"(\S+) (\w+)(?:=(\d+))?", line.split("#")[0].strip()):
                kind, name, value = found.groups()
                if value is None:
                    fields[name] = kind
                else:
                    constants[name] = (kind, value)
        parts.append((fields, constants))
    return parts


def action_header():
    structs = []
    for name, (fields, constants) in zip(("Goal", "Result", "Feedback"), parts_of_the_action(), strict=True):
        lines = [f"static constexpr {CPP[kind]} {c} = {value};" for c, (kind, value) in constants.items()]
        lines += [f"{CPP[kind]} {field};" for field, kind in fields.items()]
        structs.append(f"struct {name} {{ {' '.join(lines)} }};")
    return (
        '#pragma once\n#include <cstdint>\n#include "nav2_behavior_tree/behavior_tree_engine.hpp"\n'
        f"namespace spec_vlm_nav_interfaces::action {{ struct NavigateInstruction {{ {' '.join(structs)} }}; }}\n"
    )


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="no C++ compiler")
def test_the_source_compiles_against_stand_ins_for_nav2(tmp_path):
    headers = {
        "nav2_behavior_tree/behavior_tree_engine.hpp": ENGINE,
        "nav2_behavior_tree/bt_action_node.hpp": NODE,
        "rclcpp/duration.hpp": "",
        "spec_vlm_nav_interfaces/action/navigate_instruction.hpp": action_header(),
    }
    for name, text in headers.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    command = ["g++", "-std=c++17", "-fsyntax-only", "-Wall", "-Wextra", "-Werror", "-I", str(tmp_path)]
    command += ["-I", str(PACKAGE / "include"), str(PACKAGE / "src/navigate_instruction_action.cpp")]
    done = subprocess.run(command, text=True, capture_output=True, timeout=60)
    assert done.returncode == 0, done.stderr[-3000:]


def ports_of_the_source():
    text = (PACKAGE / "include/spec_vlm_nav_nav2/navigate_instruction_action.hpp").read_text()
    found = re.findall(r'BT::(In|Out)putPort<([\w:]+)>\(\s*"(\w+)"', text)
    return {way.lower(): {name: kind for w, kind, name in found if w == way} for way in ("In", "Out")}


def test_ports_are_fields_of_the_action_s_goal_and_result():
    (goal, _), (result, _), _ = parts_of_the_action()
    ports = ports_of_the_source()
    assert set(ports["in"]) == set(goal)
    assert {RENAMED.get(name, name) for name in ports["out"]} <= set(result)


def test_the_model_for_groot_has_the_same_ports_and_types():
    model = ElementTree.parse(PACKAGE / "tree_nodes.xml").getroot()
    (node,) = model.iter("Action")
    assert node.get("ID") == "NavigateInstruction"
    ports = ports_of_the_source()
    shown = {p.get("name"): p.get("type") for p in node.iter("input_port")}
    assert {n: t for n, t in shown.items() if n not in BASIC_PORTS} == ports["in"]
    assert set(shown) >= BASIC_PORTS
    assert {p.get("name"): p.get("type") for p in node.iter("output_port")} == ports["out"]


@pytest.mark.parametrize(
    "path", sorted((PACKAGE / "behavior_trees").glob("*.xml")), ids=lambda path: path.stem
)
def test_trees_use_ports_that_exist_and_leave_time_to_stand(path):
    root = ElementTree.parse(path).getroot()
    trees = {tree.get("ID") for tree in root.iter("BehaviorTree")}
    assert root.get("BTCPP_format") == "4" and root.get("main_tree_to_execute") in trees
    ports = ports_of_the_source()
    (node,) = root.iter("NavigateInstruction")
    assert set(node.attrib) <= {*ports["in"], *ports["out"], *BASIC_PORTS}
    assert node.get("instruction") and int(node.get("server_timeout", "0")) >= 1000
    assert all(re.fullmatch(r"\{\w+\}", value) for name, value in node.attrib.items() if name in ports["out"])


def test_the_readme_and_the_build_agree_on_the_library_s_name_and_the_ports():
    library = re.search(r"set\(library (\w+)\)", (PACKAGE / "CMakeLists.txt").read_text())
    readme = (PACKAGE / "README.md").read_text()
    assert library is not None and f"[{library.group(1)}]" in readme
    assert all(f"`{name}`" in readme for way in ports_of_the_source().values() for name in way)


def test_the_build_returns_before_the_library_where_nav2_is_missing_and_requires_nothing_else_before():
    text = (PACKAGE / "CMakeLists.txt").read_text()
    (before, after) = text.split("if(NOT nav2_behavior_tree_FOUND)")
    assert "REQUIRED" not in before.replace("find_package(ament_cmake REQUIRED)", "")
    assert after.index("return()") < after.index("add_library")
