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
