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

"""The parameters that can be changed on the page: the live ones of vlm_nav_node and motion_node."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from spec_vlm_nav.common.parameters import Parameter
from spec_vlm_nav.deciding.parameters import VLM_NAV
from spec_vlm_nav.motion.parameters import MOTION

_TABLES: dict[str, tuple[Parameter, ...]] = {"vlm_nav_node": tuple(VLM_NAV), "motion_node": MOTION}
_LIVE = {node: {p.name: p for p in table if p.live} for node, table in _TABLES.items()}
LIVE: dict[str, tuple[str, ...]] = {node: tuple(table) for node, table in _LIVE.items()}


def live_rows(values: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the live parameters with type, range and description; values: by NODE/NAME."""
    return [
        {
            "node": node,
            "name": p.name,
            "value": values.get(f"{node}/{p.name}"),
            "kind": type(p.default).__name__,
            "low": p.low,
            "high": p.high,
            "choices": list(p.choices),
            "about": p.description,
        }
        for node, table in _LIVE.items()
        for p in table.values()
    ]


def checked(node: str, name: str, given: object) -> Any:
    """Return a value in its parameter's type. Raises ParameterError; KeyError if not live."""
    parameter = _LIVE[node][name]
    value: Any = given
    if isinstance(parameter.default, float) and isinstance(given, int) and given is not True:
        value = float(given)
    parameter.check(value)
    return value
