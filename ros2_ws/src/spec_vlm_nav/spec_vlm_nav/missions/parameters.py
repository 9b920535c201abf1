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

"""The parameters of mission_node."""

from __future__ import annotations

from spec_vlm_nav.common.parameters import limit, Parameter, SAFETY_LOCKED, Tighter

MISSION: tuple[Parameter, ...] = (
    Parameter("state_file", "",
              "File that keeps the mission across a restart; empty: spec_vlm_nav/mission.json in ROS_HOME "
              "or ~/.ros, in a subfolder for the namespace if there is one."),
    SAFETY_LOCKED,
    limit(Tighter.LOWER, "lost_after_s", 2.0,
          "vlm_nav_node or motion_node is silent for this long: the mission pauses, s.", 0.5, 60.0),
)  # fmt: skip
