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

"""The exploration policies by name, and which of them understands which model's words."""

from __future__ import annotations

from spec_vlm_nav.common.errors import ParameterError

FRONTIER_SEARCH, NONE = "frontier_search", "none"
POLICIES = (FRONTIER_SEARCH, NONE)
AUTO = "auto"  # the policy that the model's prompt spec declares


def fitting_policy(wanted: str, spoken: str, model: str) -> str:
    """
    Return the policy to use; `spoken`: the one whose language the model declares to speak.

    Raises ParameterError where a policy is wanted that would not understand the model.
    """
    if wanted == AUTO:
        return spoken
    if wanted == NONE or spoken != NONE:
        return wanted
    raise ParameterError(
        f"parameter exploration = '{wanted}' refused: {model} does not speak the language of this "
        "policy (nothing in its nav_prompt.json declares it); use none, or auto"
    )
