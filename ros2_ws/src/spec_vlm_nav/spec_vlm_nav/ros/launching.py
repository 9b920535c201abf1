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


"""What the launch files share; `launch` is imported only when one of them runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from spec_vlm_nav.common.parameters import Parameter
from spec_vlm_nav.parameters.launch_arguments import typed


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
