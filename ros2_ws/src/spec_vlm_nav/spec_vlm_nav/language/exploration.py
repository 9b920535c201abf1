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

"""The names of the exploration policies, and which policy fits which model."""

from __future__ import annotations

from spec_vlm_nav.common.errors import ParameterError

FRONTIER_SEARCH, NONE = "frontier_search", "none"
POLICIES = (FRONTIER_SEARCH, NONE)
AUTO = "auto"  # the policy that the model's prompt spec declares


def fitting_policy(wanted: str, spoken: str, model: str) -> str:
    """
    Return the policy to use.

    wanted: the parameter `exploration`. spoken: the policy that the model's prompt specification
    declares. Raises ParameterError for a policy that does not fit the model.
    """
    if wanted == AUTO:
        return spoken
    if wanted == NONE or spoken != NONE:
        return wanted
    raise ParameterError(
        f"parameter exploration = '{wanted}' refused: {model} does not use the language of this "
        "policy (its nav_prompt.json does not declare it); use none, or auto"
    )
