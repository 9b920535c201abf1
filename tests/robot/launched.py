"""Launch files, run with stand-ins for the launch packages."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
import yaml

PACKAGE = Path(__file__).resolve().parents[2] / "ros2_ws/src/spec_vlm_nav"


class Said:
    """A stand-in for any class of `launch`: keeps what it was made with."""

    def __init__(self, *args, **kwargs):
        self.args, self.kwargs = args, kwargs

    def __getattr__(self, name):
        try:
            return self.kwargs[name]
        except KeyError as error:
            raise AttributeError(name) from error


class LaunchConfiguration(Said):
    def perform(self, context):
        return context.launch_configurations[self.args[0]]


NAMES = {
    "launch": "LaunchContext LaunchDescription LaunchDescriptionEntity",
    "launch.actions": "DeclareLaunchArgument ExecuteProcess GroupAction IncludeLaunchDescription LogInfo "
    "OpaqueFunction SetEnvironmentVariable",
    "launch.launch_description_sources": "PythonLaunchDescriptionSource",
    "launch.substitutions": "LaunchConfiguration",
    "launch_ros": "",
    "launch_ros.actions": "Node SetParametersFromFile SetRemap",
    "launch_ros.parameter_descriptions": "ParameterValue",
}


@pytest.fixture
def started(monkeypatch):
    """What a launch file starts, given arguments as on the command line."""
    for module, names in NAMES.items():
        made = ModuleType(module)
        for name in names.split():
            setattr(
                made, name, LaunchConfiguration if name == "LaunchConfiguration" else type(name, (Said,), {})
            )
        monkeypatch.setitem(sys.modules, module, made)

    def start(file, **given):
        actions = runpy.run_path(str(PACKAGE / "launch" / file))["generate_launch_description"]().args[0]
        context = SimpleNamespace(launch_configurations=dict(given))
        found = []
        for action in actions:
            if type(action).__name__ == "DeclareLaunchArgument":
                context.launch_configurations.setdefault(action.args[0], action.kwargs["default_value"])
            elif type(action).__name__ == "OpaqueFunction":
                found += action.kwargs["function"](context)
        unknown = set(given) - {a.args[0] for a in actions if type(a).__name__ == "DeclareLaunchArgument"}
        assert not unknown
        return found, context

    return start


def nodes(found):
    return {action.kwargs["name"]: action for action in found if type(action).__name__ == "Node"}


def values(node, context):
    """What a node's parameters are in the end: those of its files, then those that were given."""
    name, said = node.kwargs["name"], {}
    for part in node.kwargs["parameters"]:
        if isinstance(part, dict):
            for parameter, value in part.items():
                if type(value).__name__ == "ParameterValue":
                    assert isinstance(value.args[0], value.kwargs["value_type"])
                    value = value.args[0]
                said[parameter] = value
        else:
            said |= (yaml.safe_load(Path(part).read_text()) or {}).get(
                f"/**/{name}", {"ros__parameters": {}}
            )["ros__parameters"]
    return said
