# Copyright 2026 spec_vlm_nav maintainers
#
# Licensed under the Apache License, Version 2.0 (the "License");
# you may not use this file except in compliance with the License.
# You may obtain a copy of the License at
#
#     http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS,
# WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
# See the License for the specific language governing permissions and
# limitations under the License.


"""
What the launch files share; `launch` is imported only when one of them runs.

Arguments are checked here, before a node starts. launch_ros starts a node without a parameter file
that does not exist: its limits would silently be the defaults.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
import contextlib
import math
from pathlib import Path
from typing import Any

from spec_vlm_nav.common.errors import ParameterError
from spec_vlm_nav.common.parameters import Parameter, Value

TRUE, FALSE = ("true", "1", "yes", "on"), ("false", "0", "no", "off")


def is_true(name: str, said: str) -> bool:
    """Return what a switch says. Raises ParameterError for anything but true and false."""
    word = said.lower()
    if word not in TRUE + FALSE:
        raise ParameterError(f"{name} must be true or false, got {said!r}")
    return word in TRUE


def typed(parameter: Parameter, said: str) -> Value:
    """
    Return what an argument says of a node's parameter. Raises ParameterError if it is not allowed.

    launch_ros would find out only when it starts that node, and leave those that it started before.
    """
    kind = type(parameter.default)
    value: Value = said
    if kind is bool:
        value = is_true(parameter.name, said)
    elif kind is not str:
        with contextlib.suppress(ValueError):  # the check refuses the text
            value = kind(said)
    parameter.check(value)
    return value


def parameter_files(said: Iterable[str]) -> list[str]:
    """Return the non-empty names of parameter files. Raises ParameterError if one is missing."""
    files = [file for file in said if file]
    for file in files:
        if not Path(file).is_file():
            hint = ": launch does not expand ~" if file.startswith("~") else ""
            raise ParameterError(f"there is no parameter file {file!r}{hint}")
    return files


def amount(name: str, said: str) -> float:
    """Return a number from 0. Raises ParameterError for anything else."""
    try:
        number = float(said)
    except ValueError:
        number = math.nan
    if not 0 <= number < math.inf:
        raise ParameterError(f"{name} must be a number from 0, got {said!r}")
    return number


def description_of(
    arguments: Mapping[str, tuple[Any, ...]], start: Callable[[dict[str, str]], list[Any]]
) -> Any:
    """
    Return the LaunchDescription of a file.

    arguments: default and description of each argument, and its choices if it has any.
    start: returns the actions to take; it receives the arguments' values.
    """
    from launch import LaunchDescription  # type: ignore[attr-defined]
    from launch.actions import DeclareLaunchArgument, OpaqueFunction
    from launch.substitutions import LaunchConfiguration

    def act(context: Any) -> list[Any]:
        return start({name: LaunchConfiguration(name).perform(context) for name in arguments})

    declared = [
        DeclareLaunchArgument(
            name, default_value=default, description=text, choices=choices[0] if choices else None
        )
        for name, (default, text, *choices) in arguments.items()
    ]
    return LaunchDescription([*declared, OpaqueFunction(function=act)])


def values_of(parameters: Mapping[str, Parameter], given: Mapping[str, str]) -> dict[str, Any]:
    """Return the parameters among the arguments that are not empty. Raises ParameterError."""
    from launch_ros.parameter_descriptions import ParameterValue

    values = {name: typed(parameter, given[name]) for name, parameter in parameters.items() if given[name]}
    # launch_ros reads a text as YAML unless it knows that it is one.
    return {
        name: ParameterValue(value, value_type=str) if isinstance(value, str) else value
        for name, value in values.items()
    }
